"""Which method of which processor answers which request. The one table; a new processor joins it here."""

from collections.abc import Mapping

from pyledger.broker.parts import BrokerParts, Method
from pyledger.broker.processors.end_transaction import EndTransactionProcessor
from pyledger.broker.processors.locks import LockProcessor
from pyledger.broker.processors.members import MemberProcessor
from pyledger.broker.processors.offsets import OffsetProcessor
from pyledger.broker.processors.pull import PullProcessor
from pyledger.broker.processors.query import QueryProcessor
from pyledger.broker.processors.send import SendProcessor
from pyledger.broker.processors.send_back import SendBackProcessor
from pyledger.wire.codes import RequestCode


def request_handlers(parts: BrokerParts) -> Mapping[RequestCode, Method]:
    """All methods of all processors, by request code."""
    processors = (
        SendProcessor(parts, parts.transactions.put_half),
        EndTransactionProcessor(parts),
        SendBackProcessor(parts),
        PullProcessor(parts),
        QueryProcessor(parts),
        OffsetProcessor(parts),
        MemberProcessor(parts),
        LockProcessor(parts),
    )
    return {code: method for processor in processors for code, method in processor.methods().items()}
