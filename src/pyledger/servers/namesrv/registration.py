"""The content of a broker's registration, parsed again only if it has changed.

A broker sends all its topics every 30 s. Except for an unused timestamp they are compared by their hash, and
parsed only if it differs. Parsing ten thousand topics takes long, so a large body is parsed in a thread.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyledger.model.route import QueueMapping, QueueRoute
from pyledger.model.topic import DataVersion, TopicConfig
from pyledger.wire.remoting.bodies.registration import decode_registration
from pyledger.wire.remoting.command import RemotingCommand

VOLATILE = re.compile(rb'"mappingDataVersion":\{[^{}]*\}')
LARGE_BYTES = 128 << 10
LAST = "namesrv.registration"
"""Key in the data of a connection: the last body received on it."""


class Content(NamedTuple):
    """The content of a registration's body."""

    topics: Mapping[str, QueueRoute]
    data_version: DataVersion
    queue_mappings: Mapping[str, QueueMapping]
    filter_servers: tuple[str, ...] | None


def key_of(request: RemotingCommand, broker_name: str, compressed: bool) -> object:
    """Return a key that is equal for registrations with the same content."""
    hashed = hashlib.blake2b(VOLATILE.sub(b"", request.body)).digest()
    return request.version, compressed, broker_name, hashed


def remembered(data: dict[Any, Any], key: object) -> Content | None:
    """Return the content of the last body on a connection, if it had this key."""
    last: tuple[object, Content] | None = data.get(LAST)
    return last[1] if last is not None and last[0] == key else None


def decoded_content(request: RemotingCommand, broker_name: str, compressed: bool) -> Content:
    """Read the body of a registration.

    Raises:
        MalformedBodyError: It is malformed.
    """
    body = decode_registration(request.body, request.version, compressed=compressed)
    wrapper = body.topic_config_serialize_wrapper
    return Content(
        {topic.name: queue_route(broker_name, topic) for topic in wrapper.topic_config_table.values()},
        wrapper.data_version,
        body.queue_mappings,
        body.filter_server_list,
    )


def queue_route(broker_name: str, topic: TopicConfig) -> QueueRoute:
    """Return the queues of a topic's configuration, for routes."""
    return QueueRoute(
        broker_name, topic.read_queue_count, topic.write_queue_count, topic.permission, topic.sys_flag
    )
