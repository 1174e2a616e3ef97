"""What operators ask a broker for, and clients now and then.

Loaded with the first such request: it is a good part of what a broker would load at its start.
"""

from collections.abc import Mapping

from pyledger.model.remoting_codes import RequestCode
from pyledger.servers.broker.auth.admin_gate import guarded
from pyledger.servers.broker.context import BrokerContext, Method
from pyledger.servers.broker.processors.admin.auth import AuthProcessor
from pyledger.servers.broker.processors.admin.broker_config import SettingsProcessor
from pyledger.servers.broker.processors.admin.groups import GroupProcessor
from pyledger.servers.broker.processors.admin.inspection import InspectionProcessor
from pyledger.servers.broker.processors.admin.offset_resets import ResetProcessor
from pyledger.servers.broker.processors.admin.replication import ReplicationProcessor
from pyledger.servers.broker.processors.admin.runtime_info import RuntimeProcessor
from pyledger.servers.broker.processors.admin.topics import TopicProcessor
from pyledger.servers.broker.processors.query_assignment import AssignmentProcessor

Methods = Mapping[RequestCode, Method]


def operator_methods(context: BrokerContext) -> tuple[Methods, Methods]:
    """Methods of operators, by request code: those that only look, and those that change the broker."""
    operators = (
        TopicProcessor(context),
        GroupProcessor(context),
        ResetProcessor(context),
        InspectionProcessor(context),
        RuntimeProcessor(context),
        ReplicationProcessor(context),
        SettingsProcessor(context),
        AssignmentProcessor(context),
        AuthProcessor(context),
    )
    methods: dict[RequestCode, Method] = {}
    changes: dict[RequestCode, Method] = {}
    for operator in operators:
        methods |= operator.methods()
        changes |= {code: guarded(context, method) for code, method in operator.changes().items()}
    return methods, changes
