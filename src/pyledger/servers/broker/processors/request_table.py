"""Which method of which processor answers which request. A new processor joins here, or the operators'."""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib import import_module

from pyledger.model.remoting_codes import RequestCode
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.request_table import HandlerTable, refuse_unknown
from pyledger.servers.broker.context import BrokerContext, Method
from pyledger.servers.broker.processors.ack_message import AckProcessor
from pyledger.servers.broker.processors.client_manage import MemberProcessor
from pyledger.servers.broker.processors.consumer_offsets import OffsetProcessor
from pyledger.servers.broker.processors.end_transaction import EndTransactionProcessor
from pyledger.servers.broker.processors.lock_queues import LockProcessor
from pyledger.servers.broker.processors.pop_message import PopProcessor
from pyledger.servers.broker.processors.pull_message import PullProcessor
from pyledger.servers.broker.processors.query_message import QueryProcessor
from pyledger.servers.broker.processors.recall_message import RecallProcessor
from pyledger.servers.broker.processors.reply_message import ReplyProcessor
from pyledger.servers.broker.processors.role_filter import NOT_AT_SLAVES, always
from pyledger.servers.broker.processors.send_back import SendBackProcessor
from pyledger.servers.broker.processors.send_message import SENDS, SendProcessor
from pyledger.wire.remoting.command import RemotingCommand


class BrokerHandlers(HandlerTable):
    """Hands requests to the processors of a broker; those of operators come with their first request."""

    def __init__(self) -> None:
        super().__init__(self._answer_operator)
        self._context: BrokerContext | None = None
        self._has_operators = False

    def answer_with(self, context: BrokerContext) -> None:
        """Answer with this context from now on."""
        self._context = context
        self._register(context, client_methods(context), {})
        if self._has_operators:
            self._add_operators(context)

    def _answer_operator(
        self, connection: Connection, request: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        if self._has_operators or self._context is None:
            return refuse_unknown(connection, request)
        return self._load_and_answer(connection, request)

    async def _load_and_answer(self, connection: Connection, request: RemotingCommand) -> Answer:
        # On a thread: whoever sends and pulls meanwhile shall not wait for it.
        await asyncio.to_thread(import_module, "pyledger.servers.broker.processors.admin.request_table")
        if not self._has_operators:
            self._has_operators = True
            assert self._context is not None
            self._add_operators(self._context)
        answer = self(connection, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _add_operators(self, context: BrokerContext) -> None:
        from pyledger.servers.broker.processors.admin.request_table import (  # noqa: PLC0415 - rarely
            operator_methods,
        )

        self._register(context, *operator_methods(context))

    def _register(
        self,
        context: BrokerContext,
        methods: Mapping[RequestCode, Method],
        changes: Mapping[RequestCode, Method],
    ) -> None:
        found = {**methods, **changes}
        if context.access_rules is not None:
            from pyledger.servers.broker.auth.authorizer import (  # noqa: PLC0415 - only for who has rules
                Authorizer,
            )

            access = Authorizer(context.access_rules, context.config.cluster)
            found = {code: access.checked(method, changes=code in changes) for code, method in found.items()}
        for code, method in found.items():
            reject = context.puts.are_full if code in SENDS else None
            if context.broker_state.slave and code in NOT_AT_SLAVES:
                reject = always
            self.register(code, method, reject=reject)


def client_methods(context: BrokerContext) -> Mapping[RequestCode, Method]:
    """All methods that clients need, by request code."""
    sends = SendProcessor(context, context.transactions.put_half)
    pops = PopProcessor(context)
    processors = (
        sends,
        pops,
        AckProcessor(context, pops.rules),
        ReplyProcessor(context, sends.rules),
        EndTransactionProcessor(context),
        RecallProcessor(context),
        SendBackProcessor(context),
        PullProcessor(context),
        QueryProcessor(context),
        OffsetProcessor(context),
        MemberProcessor(context),
        LockProcessor(context),
    )
    methods: dict[RequestCode, Method] = {}
    for processor in processors:
        methods |= processor.methods()
    return methods
