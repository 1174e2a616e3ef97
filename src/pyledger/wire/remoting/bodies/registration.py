"""The registration of a broker at a name server: its topics, and the mapping of static topics.

The body is JSON or, if the header declares it, a zlib stream of

    length i32 | version as JSON | count i32 | topics, each: length i32 | `name read write perm filter {…}` |
    length i32 | filter servers as JSON | count i32 | mappings, each: length i32 | mapping as JSON

of which the last part exists only since 5.0. Java brokers write that form but never declare it in the header,
so no name server reads it; we read it and do not write it.

Source: RocketMQ remoting/.../protocol/body/RegisterBrokerBody.java; common/.../TopicConfig.java (decode).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pyledger.errors import CorruptBodyError, MalformedBodyError, MalformedJsonError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.route import QueueMapping
from pyledger.model.sys_flag import COMPRESSED, COMPRESSION_SHIFT
from pyledger.model.topic import NO_VERSION, Permission, TopicConfig
from pyledger.wire import fastjson
from pyledger.wire.compression import CompressionType, decompress
from pyledger.wire.remoting.bodies.json_body import (
    Body,
    Buffer,
    MismatchError,
    read_map,
    read_object,
    read_text,
    read_version,
)
from pyledger.wire.remoting.bodies.topic_config import TopicConfigTable
from pyledger.wire.remoting.versions import V3_0_11, V5_0_0

ZLIB = COMPRESSED | CompressionType.ZLIB << COMPRESSION_SHIFT
PLAIN_MAX_BYTES = 16 << 20
DECOMPRESSED_FACTOR = 100
"""Maximum ratio of decompressed to compressed size."""
KIND = "RegisterBrokerBody"


@lazy_dataclass(kw_only=True)
class RegisterBrokerBody(Body):
    """The body of 103."""

    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)
    filter_server_list: tuple[str, ...] | None = ()
    """None: a broker before 3.0.11 does not speak of them."""

    @property
    def queue_mappings(self) -> Mapping[str, QueueMapping]:
        """Static topics, by topic."""
        table = self.topic_config_serialize_wrapper.topic_queue_mapping_info_map
        try:
            return {topic: read_object(QueueMapping, one) for topic, one in table.items()}
        except MismatchError as problem:
            raise MalformedBodyError(KIND, problem.path, problem.problem) from None


def decode_registration(body: Buffer, version: int, *, compressed: bool = False) -> RegisterBrokerBody:
    """Read the body of 103.

    Args:
        body: As received; empty counts as a table without topics.
        version: The broker's, from its command.
        compressed: Whether the header declares compression.

    Raises:
        MalformedBodyError: it is not a registration, or too large when decompressed.
    """
    if not len(body):
        return RegisterBrokerBody()
    if version < V3_0_11:
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigTable.decode(body), filter_server_list=None
        )
    if not compressed:
        return RegisterBrokerBody.decode(body)
    try:
        limit_bytes = min(PLAIN_MAX_BYTES, DECOMPRESSED_FACTOR * len(body))
        return CompressedBody(decompress(body, ZLIB, limit_bytes=limit_bytes, place=KIND)).registration(
            version
        )
    except CorruptBodyError as problem:
        raise MalformedBodyError(KIND, "", str(problem)) from None
    except MalformedJsonError as problem:
        raise MalformedBodyError(KIND, "", str(problem)) from None
    except MismatchError as problem:
        raise MalformedBodyError(KIND, problem.path, problem.problem) from None


class CompressedBody:
    """Reads the decompressed bytes of a registration from front to back."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain
        self.at = 0

    def registration(self, version: int) -> RegisterBrokerBody:
        """All of it."""
        data_version = read_version(self.json())
        topics = [self.topic() for _ in range(self.count())]
        filter_servers = self.json()
        mappings: dict[str, Any] = {}
        if version >= V5_0_0 and self.at < len(self.plain):
            for _ in range(self.count()):
                mapping = read_map(self.json(), read_text, lambda value: value)
                mappings[read_text(mapping.get("topic"))] = mapping
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigTable(
                topic_config_table={topic.name: topic for topic in topics},
                data_version=data_version,
                topic_queue_mapping_info_map=mappings,
                mapping_data_version=NO_VERSION if version >= V5_0_0 else None,
            ),
            filter_server_list=tuple(
                map(read_text, filter_servers if isinstance(filter_servers, list) else ())
            ),
        )

    def count(self) -> int:
        """A number of 32 bits; as each thing that it counts takes 4 bytes at least, the rest bounds it."""
        number = int.from_bytes(self.plain[self.at : self.at + 4], signed=True)
        self.at += 4
        if not 0 <= number <= len(self.plain) - self.at:
            raise MismatchError(f"the number {number} at byte {self.at - 4} does not fit")
        return number

    def text(self) -> str:
        """A text with its length before it."""
        size = self.count()
        self.at += size
        return str(self.plain[self.at - size : self.at], "utf-8", "replace")

    def json(self) -> Any:
        """A text that is JSON."""
        return fastjson.parse(self.text())

    def topic(self) -> TopicConfig:
        """A topic: words, and attributes as JSON without a space."""
        words = self.text().split(" ")
        try:
            name, read, write, perm, filter_type = words[:5]
            return TopicConfig(
                name=name,
                read_queue_count=int(read),
                write_queue_count=int(write),
                permission=Permission(int(perm)),
                filter_type=filter_type,
                attributes=read_map(fastjson.parse(words[5]), read_text, read_text) if words[5:] else {},
            )
        except ValueError:
            raise MismatchError(f"the topic {' '.join(words)[:100]!r} cannot be read") from None
