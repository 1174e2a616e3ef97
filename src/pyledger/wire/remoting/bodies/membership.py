"""Connected clients, and the owners of queues.

Source: RocketMQ remoting/.../protocol/body/Connection.java, ConsumerConnection.java, ProducerConnection.java,
GetConsumerListByGroupResponseBody.java, LockBatchRequestBody.java, LockBatchResponseBody.java,
QueryAssignmentRequestBody.java, MessageQueueAssignment.java, SetMessageRequestModeRequestBody.java.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import ClassVar

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import MessageQueue
from pyledger.wire.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.headers.codec import Int, Long


@lazy_dataclass(kw_only=True)
class Connection(Body):
    """One client of a group."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    """Name of a `LanguageCode`."""
    version: Int = 0


@lazy_dataclass(kw_only=True)
class ConsumerConnection(Body):
    """To 203: a consumer group."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: Mapping[str, Subscription] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@lazy_dataclass(kw_only=True)
class ProducerConnection(Body):
    """To 204: a producer group."""

    connection_set: tuple[Connection, ...] = ()


@lazy_dataclass(kw_only=True)
class ProducerMember(Body):
    """One producer; upstream's `ProducerInfo`."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"remote_ip": "remoteIP"}

    client_id: str | None = None
    remote_ip: str | None = None
    """With its port."""
    language: str | None = None
    version: Int = 0
    last_update_timestamp: Long = 0


@lazy_dataclass(kw_only=True)
class ProducerMembers(Body):
    """To 328: producers by group; upstream's `ProducerTableInfo`."""

    data: Mapping[str, tuple[ProducerMember, ...]] = field(default_factory=dict)


@lazy_dataclass(kw_only=True)
class ConsumerIds(Body):
    """To 38: client ids of a group; upstream's `GetConsumerListByGroupResponseBody`."""

    consumer_id_list: tuple[str, ...] = ()


@lazy_dataclass(kw_only=True)
class LockBatchRequest(Body):
    """41 and 42: lock or unlock queues for a client."""

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


@lazy_dataclass(kw_only=True)
class LockBatchResponse(Body):
    """To 41: the queues that are the client's now."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"lock_ok_mq_set": "lockOKMQSet"}

    lock_ok_mq_set: tuple[MessageQueue, ...] = ()


class MessageRequestMode(StrEnum):
    """How a group requests messages."""

    PULL = "PULL"
    POP = "POP"


@lazy_dataclass(kw_only=True)
class QueryAssignmentRequest(Body):
    """400: the queues that a client must consume."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: MessageModel | None = None


@lazy_dataclass(kw_only=True)
class QueueAssignment(Body):
    """A queue of a client; upstream's `MessageQueueAssignment`."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: Mapping[str, str] | None = None


@lazy_dataclass(kw_only=True)
class QueryAssignmentResponse(Body):
    """To 400. None: the group is not known."""

    message_queue_assignments: tuple[QueueAssignment, ...] | None = None


@lazy_dataclass(kw_only=True)
class MessageRequestModeRequest(Body):
    """401: how a group must request the messages of a topic."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int = 0


@lazy_dataclass(kw_only=True)
class MessageRequestModes(Body):
    """To 402: modes by topic and group."""

    message_request_mode_map: Mapping[str, Mapping[str, MessageRequestModeRequest]] = field(
        default_factory=dict
    )
