"""Ends of transactions: 37.

Source: RocketMQ broker/.../EndTransactionProcessor.java.
"""

from collections.abc import Mapping
from functools import partial

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import CODE_OF_PUT, STORED
from pyledger.protocol.broker.transaction import TransactionEnd
from pyledger.servers.broker.auth.admin_gate import denied
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import PutOutcome
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import EndTransactionRequestHeader


class EndTransactionProcessor:
    """Commits and rolls back half messages."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {RequestCode.END_TRANSACTION: self.end}

    def end(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer END_TRANSACTION (37)."""
        header = request.header(EndTransactionRequestHeader)
        if self._context.broker_state.slave:
            return request.response(ResponseCode.SLAVE_NOT_AVAILABLE, "end it at the master")
        if header.commit_or_rollback == TransactionEnd.UNKNOWN:
            return None
        if header.commit_or_rollback not in tuple(TransactionEnd):
            problem = f"commitOrRollback is {header.commit_or_rollback}, not 0, 8 or 12"
            return request.response(ResponseCode.SYSTEM_ERROR, problem)
        transactions = self._context.transactions
        found = transactions.find(header)
        if isinstance(found, Rejection):
            return request.response(found.code, found.remark)
        half, place = found
        # The topic of the message counts, not the one that the request names.
        if (rejected := denied(self._context, connection, request, place.topic, "Pub")) is not None:
            return rejected
        if header.commit_or_rollback == TransactionEnd.ROLLBACK:
            transactions.end(half.queue_offset)
            return request.response()
        return transactions.commit(half, place).then(partial(response_of, request))


def response_of(request: RemotingCommand, outcome: PutOutcome) -> RemotingCommand:
    """Return the response to a commit."""
    if outcome.status in STORED:
        return request.response()
    return request.response(CODE_OF_PUT[outcome.status], outcome.problem)
