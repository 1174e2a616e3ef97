"""Which method of which processor answers which request. A new processor joins here, or the operators'."""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib import import_module

from pyledger.broker.parts import BrokerParts, Method
from pyledger.broker.processors.ack import AckProcessor
from pyledger.broker.processors.end_transaction import EndTransactionProcessor
from pyledger.broker.processors.locks import LockProcessor
from pyledger.broker.processors.members import MemberProcessor
from pyledger.broker.processors.offsets import OffsetProcessor
from pyledger.broker.processors.pop import PopProcessor
from pyledger.broker.processors.pull import PullProcessor
from pyledger.broker.processors.query import QueryProcessor
from pyledger.broker.processors.recall import RecallProcessor
from pyledger.broker.processors.reply import ReplyProcessor
from pyledger.broker.processors.send import SENDS, SendProcessor
from pyledger.broker.processors.send_back import SendBackProcessor
from pyledger.broker.role import NOT_AT_SLAVES, always
from pyledger.model.remoting_codes import RequestCode
from pyledger.net.connection import Connection
from pyledger.net.endpoint import Answer
from pyledger.net.handlers import HandlerTable, refuse_unknown
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
        await asyncio.to_thread(import_module, "pyledger.broker.processors.operators")
        if not self._has_operators:
            self._has_operators = True
            assert self._parts is not None
            self._add_operators(self._parts)
        answer = self(connection, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _add_operators(self, parts: BrokerParts) -> None:
        from pyledger.broker.processors.operators import operator_methods  # noqa: PLC0415 - not at the start

        self._register(parts, *operator_methods(parts))

    def _register(
        self, parts: BrokerParts, methods: Mapping[RequestCode, Method], changes: Mapping[RequestCode, Method]
    ) -> None:
        found = {**methods, **changes}
        if parts.access_rules is not None:
            from pyledger.broker.access import AccessControl  # noqa: PLC0415 - only for who has rules

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
