"""Maps request codes to methods of processors. A new processor is added here."""
# ruff: noqa: PLC0415 - the processors of operators are loaded with the first request for one

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Protocol

from pyledger.model.remoting_codes import RequestCode
from pyledger.net.deferred import Deferred
from pyledger.net.endpoint import Answer, AnswerBatch, BatchAnswer, Frame
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.request_table import HandlerTable, reject_unknown
from pyledger.servers.broker.context import BrokerContext, Method
from pyledger.servers.broker.processors.ack_message import AckProcessor
from pyledger.servers.broker.processors.client_manage import MemberProcessor
from pyledger.servers.broker.processors.consumer_offsets import OffsetProcessor
from pyledger.servers.broker.processors.end_transaction import EndTransactionProcessor
from pyledger.servers.broker.processors.lock_queues import LockProcessor
from pyledger.servers.broker.processors.pop_message import PopProcessor
from pyledger.servers.broker.processors.pull_message import PULLS, PullProcessor
from pyledger.servers.broker.processors.query_message import QueryProcessor
from pyledger.servers.broker.processors.recall_message import RecallProcessor
from pyledger.servers.broker.processors.reply_message import ReplyProcessor
from pyledger.servers.broker.processors.role_filter import NOT_AT_SLAVES, always
from pyledger.servers.broker.processors.send_back import SendBackProcessor
from pyledger.servers.broker.processors.send_message import SENDS, SendProcessor
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.native_codec import DecodedRequest


class OperatorProcessor(Protocol):
    """Answers administrative requests."""

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""


class BrokerHandlers(HandlerTable):
    """Passes requests to the processors of a broker; loads those of operators at the first such request."""

    def __init__(self) -> None:
        super().__init__(self._answer_operator)
        self._context: BrokerContext | None = None
        self._has_operators = False
        self._batches: Mapping[int, AnswerBatch[Connection]] = {}

    def answer_with(self, context: BrokerContext) -> None:
        """Answer with this context from now on."""
        self._context = context
        sends, pulls = SendProcessor(context, context.transactions.put_half), PullProcessor(context)
        self._register(context, client_methods(context, sends, pulls), {})
        self._batches = {**dict.fromkeys(SENDS, sends.answer), **dict.fromkeys(PULLS, pulls.answer)}
        if self._has_operators:
            self._add_operators(context)

    def answer_batch(
        self, connection: Connection, frames: list[Frame], at: int
    ) -> tuple[BatchAnswer | Deferred[Any] | asyncio.Future[Any], int]:
        """Answer the send or pull at an index of the frames, and those that are answered with it.

        The others are answered as commands, each by its method: requests that native code does not decode,
        all requests to a broker with access rules, and those that are rejected (busy, a slave, going away).
        """
        request = frames[at]
        assert isinstance(request, DecodedRequest)
        answer = self._batches.get(request.code)
        if answer is None or self.rejects(request.code):
            return None, 0
        return answer(connection, frames, at)

    def _answer_operator(
        self, connection: Connection, request: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        if self._has_operators or self._context is None:
            return reject_unknown(connection, request)
        return self._load_and_answer(connection, request)

    async def _load_and_answer(self, connection: Connection, request: RemotingCommand) -> Answer:
        # On a thread, so that sends and pulls do not wait.
        await asyncio.to_thread(operator_processors)
        if not self._has_operators:
            self._has_operators = True
            assert self._context is not None
            self._add_operators(self._context)
        answer = self(connection, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _add_operators(self, context: BrokerContext) -> None:
        from pyledger.servers.broker.auth.admin_gate import guarded

        methods: dict[RequestCode, Method] = {}
        changes: dict[RequestCode, Method] = {}
        for processor in operator_processors():
            operator = processor(context)
            methods |= operator.methods()
            changes |= {code: guarded(context, method) for code, method in operator.changes().items()}
        self._register(context, methods, changes)

    def _register(
        self,
        context: BrokerContext,
        methods: Mapping[RequestCode, Method],
        changes: Mapping[RequestCode, Method],
    ) -> None:
        found = {**methods, **changes}
        if context.access_rules is not None:
            from pyledger.servers.broker.auth.authorizer import Authorizer

            access = Authorizer(context.access_rules, context.config.cluster)
            found = {code: access.checked(method, changes=code in changes) for code, method in found.items()}
        for code, method in found.items():
            reject = context.puts.are_full if code in SENDS else None
            if context.broker_state.slave and code in NOT_AT_SLAVES:
                reject = always
            self.register(code, method, reject=reject)


def client_methods(
    context: BrokerContext, sends: SendProcessor, pulls: PullProcessor
) -> Mapping[RequestCode, Method]:
    """Return all methods that clients need, by request code."""
    pops = PopProcessor(context)
    processors = (
        sends,
        pops,
        AckProcessor(context, pops.rules),
        ReplyProcessor(context, sends.rules),
        EndTransactionProcessor(context),
        RecallProcessor(context),
        SendBackProcessor(context),
        pulls,
        QueryProcessor(context),
        OffsetProcessor(context),
        MemberProcessor(context),
        LockProcessor(context),
    )
    methods: dict[RequestCode, Method] = {}
    for processor in processors:
        methods |= processor.methods()
    return methods


@cache
def operator_processors() -> tuple[Callable[[BrokerContext], OperatorProcessor], ...]:
    """Load the processors of operators, which would take much of a broker's start-up time."""
    from pyledger.servers.broker.processors.admin.auth import AuthProcessor
    from pyledger.servers.broker.processors.admin.broker_config import SettingsProcessor
    from pyledger.servers.broker.processors.admin.groups import GroupProcessor
    from pyledger.servers.broker.processors.admin.inspection import InspectionProcessor
    from pyledger.servers.broker.processors.admin.offset_resets import ResetProcessor
    from pyledger.servers.broker.processors.admin.replication import ReplicationProcessor
    from pyledger.servers.broker.processors.admin.runtime_info import RuntimeProcessor
    from pyledger.servers.broker.processors.admin.topics import TopicProcessor
    from pyledger.servers.broker.processors.query_assignment import AssignmentProcessor

    return (
        TopicProcessor,
        GroupProcessor,
        ResetProcessor,
        InspectionProcessor,
        RuntimeProcessor,
        ReplicationProcessor,
        SettingsProcessor,
        AssignmentProcessor,
        AuthProcessor,
    )
