"""What operators ask a broker for, and clients now and then.

Loaded with the first such request: it is a good part of what a broker would load at its start.
"""

from collections.abc import Mapping

from pyledger.broker.gate import guarded
from pyledger.broker.parts import BrokerParts, Method
from pyledger.broker.processors.access import AccessProcessor
from pyledger.broker.processors.assignment import AssignmentProcessor
from pyledger.broker.processors.groups import GroupProcessor
from pyledger.broker.processors.inspection import InspectionProcessor
from pyledger.broker.processors.replication import ReplicationProcessor
from pyledger.broker.processors.resets import ResetProcessor
from pyledger.broker.processors.runtime import RuntimeProcessor
from pyledger.broker.processors.settings import SettingsProcessor
from pyledger.broker.processors.topics import TopicProcessor
from pyledger.model.remoting_codes import RequestCode

Methods = Mapping[RequestCode, Method]


def operator_methods(parts: BrokerParts) -> tuple[Methods, Methods]:
    """Methods of operators, by request code: those that only look, and those that change the broker."""
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
    changes: dict[RequestCode, Method] = {}
    for operator in operators:
        methods |= operator.methods()
        changes |= {code: guarded(parts, method) for code, method in operator.changes().items()}
    return methods, changes
