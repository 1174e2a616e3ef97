"""Which method of which processor answers which request. The one table; a new processor joins it here."""

from collections.abc import Mapping

from pyledger.broker.access import AccessControl
from pyledger.broker.gate import guarded
from pyledger.broker.parts import BrokerParts, Method
from pyledger.broker.processors.access import AccessProcessor
from pyledger.broker.processors.ack import AckProcessor
from pyledger.broker.processors.assignment import AssignmentProcessor
from pyledger.broker.processors.end_transaction import EndTransactionProcessor
from pyledger.broker.processors.groups import GroupProcessor
from pyledger.broker.processors.inspection import InspectionProcessor
from pyledger.broker.processors.locks import LockProcessor
from pyledger.broker.processors.members import MemberProcessor
from pyledger.broker.processors.offsets import OffsetProcessor
from pyledger.broker.processors.pop import PopProcessor
from pyledger.broker.processors.pull import PullProcessor
from pyledger.broker.processors.query import QueryProcessor
from pyledger.broker.processors.recall import RecallProcessor
from pyledger.broker.processors.replication import ReplicationProcessor
from pyledger.broker.processors.reply import ReplyProcessor
from pyledger.broker.processors.resets import ResetProcessor
from pyledger.broker.processors.runtime import RuntimeProcessor
from pyledger.broker.processors.send import SendProcessor
from pyledger.broker.processors.send_back import SendBackProcessor
from pyledger.broker.processors.settings import SettingsProcessor
from pyledger.broker.processors.topics import TopicProcessor
from pyledger.wire.codes import RequestCode


def request_handlers(parts: BrokerParts) -> Mapping[RequestCode, Method]:
    """All methods of all processors, by request code."""
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
    operators = (
        TopicProcessor(parts),
        GroupProcessor(parts),
        ResetProcessor(parts),
        InspectionProcessor(parts),
        RuntimeProcessor(parts),
        ReplicationProcessor(parts),
        SettingsProcessor(parts),
        AssignmentProcessor(parts),
        AccessProcessor(parts),
    )
    methods: dict[RequestCode, Method] = {}
    for processor in (*processors, *operators):
        methods |= processor.methods()
    changes: dict[RequestCode, Method] = {}
    for operator in operators:
        changes |= {code: guarded(parts, method) for code, method in operator.changes().items()}
    if parts.access_rules is None:
        return methods | changes
    access = AccessControl(parts.access_rules, parts.config.cluster)
    return {
        code: access.checked(method, changes=code in changes) for code, method in (methods | changes).items()
    }
