"""Which method of which processor answers which request. A new processor joins here, or the operators'."""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib import import_module

from pyledger.model.remoting_codes import RequestCode
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.request_table import HandlerTable, refuse_unknown
from pyledger.servers.broker.context import BrokerParts, Method
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
        self._parts: BrokerParts | None = None
        self._has_operators = False

    def answer_with(self, parts: BrokerParts) -> None:
        """Answer with these parts from now on."""
        self._parts = parts
        self._register(parts, client_methods(parts), {})
        if self._has_operators:
            self._add_operators(parts)

    def _answer_operator(
        self, connection: Connection, request: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        if self._has_operators or self._parts is None:
            return refuse_unknown(connection, request)
        return self._load_and_answer(connection, request)

    async def _load_and_answer(self, connection: Connection, request: RemotingCommand) -> Answer:
        # On a thread: whoever sends and pulls meanwhile shall not wait for it.
        await asyncio.to_thread(import_module, "pyledger.servers.broker.processors.admin.request_table")
        if not self._has_operators:
            self._has_operators = True
            assert self._parts is not None
            self._add_operators(self._parts)
        answer = self(connection, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _add_operators(self, parts: BrokerParts) -> None:
        from pyledger.servers.broker.processors.admin.request_table import (  # noqa: PLC0415 - rarely
            operator_methods,
        )

        self._register(parts, *operator_methods(parts))

    def _register(
        self, parts: BrokerParts, methods: Mapping[RequestCode, Method], changes: Mapping[RequestCode, Method]
    ) -> None:
        found = {**methods, **changes}
        if parts.access_rules is not None:
            from pyledger.servers.broker.auth.authorizer import (  # noqa: PLC0415 - only for who has rules
                AccessControl,
            )

            access = AccessControl(parts.access_rules, parts.config.cluster)
            found = {code: access.checked(method, changes=code in changes) for code, method in found.items()}
        for code, method in found.items():
            reject = parts.puts.are_full if code in SENDS else None
            if parts.standing.slave and code in NOT_AT_SLAVES:
                reject = always
            self.register(code, method, reject=reject)


def client_methods(parts: BrokerParts) -> Mapping[RequestCode, Method]:
    """All methods that clients need, by request code."""
    sends = SendProcessor(parts, parts.transactions.put_half)
    pops = PopProcessor(parts)
    processors = (
        sends,
        pops,
        AckProcessor(parts, pops.rules),
        ReplyProcessor(parts, sends.rules),
        EndTransactionProcessor(parts),
        RecallProcessor(parts),
        SendBackProcessor(parts),
        PullProcessor(parts),
        QueryProcessor(parts),
        OffsetProcessor(parts),
        MemberProcessor(parts),
        LockProcessor(parts),
    )
    methods: dict[RequestCode, Method] = {}
    for processor in processors:
        methods |= processor.methods()
    return methods
