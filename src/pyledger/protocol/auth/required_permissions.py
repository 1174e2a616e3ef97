"""The permissions that each request needs.

Source: RocketMQ auth/.../authorization/builder/DefaultAuthorizationContextBuilder.java;
acl/.../plain/PlainAccessResource.java.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode as Code
from pyledger.protocol.auth.model import Action, Need, ResourceKind

PUB, SUB, GET = (Action.PUB,), (Action.SUB,), (Action.GET,)
READ = (Action.SUB, Action.GET)
MOVE = (Action.SUB, Action.UPDATE)
MAKE = (Action.CREATE, Action.UPDATE)
UPDATE, DELETE = (Action.UPDATE,), (Action.DELETE,)


class FieldNeed(NamedTuple):
    """Permissions on the resource in a field of the header."""

    kind: ResourceKind
    field: str
    any_of: tuple[Action, ...]


def topic(field: str, any_of: tuple[Action, ...]) -> FieldNeed:
    """Permissions on a topic."""
    return FieldNeed(ResourceKind.TOPIC, field, any_of)


def group(field: str, any_of: tuple[Action, ...]) -> FieldNeed:
    """Permissions on a group."""
    return FieldNeed(ResourceKind.GROUP, field, any_of)


CONSUME = (topic("topic", SUB), group("consumerGroup", SUB))
LOOK = (topic("topic", (Action.PUB, Action.SUB, Action.GET)),)

NEEDS: Mapping[int, tuple[FieldNeed, ...]] = {
    Code.SEND_MESSAGE: (topic("topic", PUB),),
    Code.SEND_MESSAGE_V2: (topic("b", PUB),),
    Code.SEND_BATCH_MESSAGE: (topic("b", PUB),),
    Code.SEND_REPLY_MESSAGE: (topic("topic", PUB),),
    Code.SEND_REPLY_MESSAGE_V2: (topic("b", PUB),),
    Code.RECALL_MESSAGE: (topic("topic", PUB),),
    Code.END_TRANSACTION: (topic("topic", PUB),),
    Code.CONSUMER_SEND_MSG_BACK: (group("group", SUB),),
    Code.PULL_MESSAGE: CONSUME,
    Code.LITE_PULL_MESSAGE: CONSUME,
    Code.POP_MESSAGE: CONSUME,
    Code.PEEK_MESSAGE: CONSUME,
    Code.ACK_MESSAGE: CONSUME,
    Code.CHANGE_MESSAGE_INVISIBLETIME: CONSUME,
    Code.NOTIFICATION: CONSUME,
    Code.POLLING_INFO: CONSUME,
    Code.QUERY_CONSUMER_OFFSET: (topic("topic", READ), group("consumerGroup", READ)),
    Code.UPDATE_CONSUMER_OFFSET: (topic("topic", MOVE), group("consumerGroup", MOVE)),
    Code.GET_CONSUMER_LIST_BY_GROUP: (group("consumerGroup", READ),),
    Code.UNREGISTER_CLIENT: (group("consumerGroup", SUB),),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: LOOK,
    Code.GET_MAX_OFFSET: LOOK,
    Code.GET_MIN_OFFSET: LOOK,
    Code.GET_EARLIEST_MSG_STORETIME: LOOK,
    Code.QUERY_MESSAGE: (topic("topic", READ),),
    Code.UPDATE_AND_CREATE_TOPIC: (topic("topic", MAKE),),
    Code.DELETE_TOPIC_IN_BROKER: (topic("topic", DELETE),),
    Code.GET_TOPIC_CONFIG: (topic("topic", GET),),
    Code.GET_TOPIC_STATS_INFO: (topic("topic", GET),),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (topic("topic", GET),),
    Code.QUERY_CONSUME_QUEUE: (topic("topic", GET),),
    Code.DELETE_SUBSCRIPTIONGROUP: (group("groupName", DELETE),),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (group("group", GET),),
    Code.GET_CONSUMER_CONNECTION_LIST: (group("consumerGroup", GET),),
    Code.GET_CONSUME_STATS: (group("consumerGroup", GET),),
    Code.GET_CONSUMER_RUNNING_INFO: (group("consumerGroup", GET),),
    Code.QUERY_TOPICS_BY_CONSUMER: (group("group", GET),),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (topic("topic", READ), group("group", UPDATE)),
    Code.CONSUME_MESSAGE_DIRECTLY: (group("consumerGroup", UPDATE),),
    # Only a user: their resource is in the body or in the log, or they have none.
    Code.HEART_BEAT: (),
    Code.LOCK_BATCH_MQ: (),
    Code.UNLOCK_BATCH_MQ: (),
    Code.CHECK_CLIENT_CONFIG: (),
    Code.QUERY_ASSIGNMENT: (),
    Code.BATCH_ACK_MESSAGE: (),
    Code.VIEW_MESSAGE_BY_ID: (),
}
OPTIONAL = frozenset({Code.END_TRANSACTION, Code.UNREGISTER_CLIENT})
"""A missing field needs no permission: older clients omit it, or it is one of two."""

POPPING = frozenset({Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME})
"""These requests contain the retry topic of a topic and a group; they need both the topic and the group."""


def needs_of(code: int, fields: Mapping[str, str], cluster: str, *, changes: bool) -> list[Need]:
    """Return the permissions that a request needs by its header.

    Args:
        code: Request code.
        fields: Fields of its header.
        cluster: The broker's cluster, the resource of all permissions that are not on a topic or a group.
        changes: Whether the request changes the broker.
    """
    described = NEEDS.get(code)
    if described is None:
        return [Need(ResourceKind.CLUSTER, cluster, UPDATE if changes else GET)]
    found = []
    popped_again = f"{names.RETRY_PREFIX}{fields.get('consumerGroup', '')}_"
    for kind, field, any_of in described:
        name = fields.get(field, "")
        if code == Code.END_TRANSACTION and name == names.HALF_TOPIC:
            # The response to a check: it contains the half message's offset, which only its producer knows.
            continue
        if kind is ResourceKind.TOPIC and code in POPPING and name.startswith(popped_again):
            name = name.removeprefix(popped_again)
        if name:
            found.append(need_of(kind, name, any_of))
        elif code not in OPTIONAL:
            found.append(Need(ResourceKind.CLUSTER, cluster, any_of))
    return found


def need_of(kind: ResourceKind, name: str, any_of: tuple[Action, ...]) -> Need:
    """Return a permission; that on a retry topic is one on its group, whose members also send to it."""
    if kind is ResourceKind.TOPIC and name.startswith(names.RETRY_PREFIX):
        of_group = tuple(dict.fromkeys(Action.SUB if one is Action.PUB else one for one in any_of))
        return Need(ResourceKind.GROUP, name.removeprefix(names.RETRY_PREFIX), of_group)
    return Need(kind, name, any_of)


def consuming(group_name: str, topics: Iterable[str]) -> list[Need]:
    """Return the permissions that a member of a group needs for its subscriptions."""
    needs = {need_of(ResourceKind.TOPIC, one, SUB): None for one in topics}
    return [Need(ResourceKind.GROUP, group_name, SUB), *needs]
