"""What a broker's registration says, read once for as long as the broker repeats itself.

A broker sends all its topics every 30 s. What changes each time is a time stamp that nobody looks at; the
rest is compared by its hash, and read only when that is another one. Ten thousand topics take long to read:
a large body is read in a thread, while the event loop goes on.
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
"""Key in the data of a connection: the last body that came on it."""


class Content(NamedTuple):
    """The body of a registration."""

    topics: Mapping[str, QueueRoute]
    data_version: DataVersion
    queue_mappings: Mapping[str, QueueMapping]
    filter_servers: tuple[str, ...] | None


def key_of(request: RemotingCommand, broker_name: str, compressed: bool) -> object:
    """What two registrations have in common that say the same."""
    hashed = hashlib.blake2b(VOLATILE.sub(b"", request.body)).digest()
    return request.version, compressed, broker_name, hashed


def remembered(data: dict[Any, Any], key: object) -> Content | None:
    """The content of the last body on a connection, if it had this key."""
    last: tuple[object, Content] | None = data.get(LAST)
    return last[1] if last is not None and last[0] == key else None


def decoded_content(request: RemotingCommand, broker_name: str, compressed: bool) -> Content:
    """Read the body of a registration.

    Raises:
        MalformedBodyError: it is none.
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
    """What a route says of a topic's configuration."""
    return QueueRoute(
        broker_name, topic.read_queue_count, topic.write_queue_count, topic.permission, topic.sys_flag
    )
