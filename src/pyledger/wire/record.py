"""Records of the commit log as a pull answers them, one after the other.

`size i32 | magic i32 | body crc i32 | queue id i32 | flag i32 | queue offset i64 | physical offset i64 |
sysFlag i32 | born time i64 | born host | store time i64 | store host | reconsume times i32 | prepared
transaction offset i64 | body length i32 | body | topic length u8 (V2: u16) | topic | properties length i16 |
properties`. A host is 4 or 16 bytes of address, as sysFlag says, and a port of 4 bytes.

Only the head is read at once: properties and a packed body are decoded when they are asked for.

Source: RocketMQ common/.../MessageDecoder.java (decode, decodes, decodeMessage).
"""

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Self

from pyledger import names
from pyledger.errors import MalformedRecordError
from pyledger.wire.batch import decode_batch
from pyledger.wire.compression import decompress
from pyledger.wire.headers.send import ReplyMessageRequestHeader
from pyledger.wire.message_id import encode_message_id
from pyledger.wire.properties import decode_properties
from pyledger.wire.sysflag import BORN_HOST_IPV6, COMPRESSED, INNER_BATCH, NEED_UNWRAP, STORE_HOST_IPV6

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
HOST_V4_BYTES = 8
HOST_V6_BYTES = 20
BATCH = INNER_BATCH | NEED_UNWRAP

HEADS = {
    flags: struct.Struct(
        f">iIIiiqqiq{HOST_V6_BYTES if flags & BORN_HOST_IPV6 else HOST_V4_BYTES}s"
        f"q{HOST_V6_BYTES if flags & STORE_HOST_IPV6 else HOST_V4_BYTES}siqi"
    )
    for flags in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, BORN_HOST_IPV6 | STORE_HOST_IPV6)
}
"""All up to the body, by the bits of sysFlag that say how long hosts are."""
SIZE = struct.Struct(">i")
AT_SYS_FLAG = 36
RECORD_MIN_BYTES = 91
"""V1, IPv4 hosts, nothing in it."""
TOPIC_LENGTHS = {MAGIC_V1: struct.Struct(">B"), MAGIC_V2: struct.Struct(">H")}
PROPERTIES_LENGTH = struct.Struct(">h")

Buffer = bytes | bytearray | memoryview


class ReceivedMessage:
    """A message as a consumer has it.

    Attributes:
        topic: Where the sender put it; of a retried message the topic it came from.
        queue_id: Queue of the topic.
        queue_offset: Place in the queue.
        physical_offset: Place in the commit log of the broker, in bytes.
        store_size: Bytes of the record.
        sys_flag: See `pyledger.wire.sysflag`.
        flag: The sender's own number.
        born_timestamp: When it was made, ms by the sender's clock.
        store_timestamp: When it was stored, ms by the broker's clock.
        reconsume_times: How often a consumer of the group has failed.
        prepared_transaction_offset: Physical offset of the half message it came from.
        body_crc: CRC-32 of the stored body, 31 bits.
        stored_body: The body as it is stored, perhaps packed.
        broker_name: Who it came from; set by a client.
    """

    __slots__ = (
        "_body",
        "_born_host",
        "_encoded_properties",
        "_properties",
        "_store_host",
        "body_crc",
        "born_timestamp",
        "broker_name",
        "flag",
        "physical_offset",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_size",
        "store_timestamp",
        "stored_body",
        "sys_flag",
        "topic",
    )

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    sys_flag: int
    flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    stored_body: bytes
    broker_name: str
    _body: bytes | None
    _properties: dict[str, str] | None
    _encoded_properties: bytes
    _born_host: bytes
    _store_host: bytes

    @classmethod
    def decode(cls, view: memoryview, start: int, size_bytes: int) -> Self:
        """Decode the record of `size_bytes` at position `start` of a buffer.

        Raises:
            MalformedRecordError: lengths do not fit each other.
        """
        self = cls()
        end = start + size_bytes
        try:
            (flags,) = SIZE.unpack_from(view, start + AT_SYS_FLAG)
            head = HEADS[flags & (BORN_HOST_IPV6 | STORE_HOST_IPV6)]
            (
                self.store_size,
                magic,
                self.body_crc,
                self.queue_id,
                self.flag,
                self.queue_offset,
                self.physical_offset,
                self.sys_flag,
                self.born_timestamp,
                self._born_host,
                self.store_timestamp,
                self._store_host,
                self.reconsume_times,
                self.prepared_transaction_offset,
                body_bytes,
            ) = head.unpack_from(view, start)
            length = TOPIC_LENGTHS[magic]
            body_at = start + head.size
            topic_at = body_at + body_bytes + length.size
            (topic_bytes,) = length.unpack_from(view, topic_at - length.size)
            properties_at = topic_at + topic_bytes + PROPERTIES_LENGTH.size
            (properties_bytes,) = PROPERTIES_LENGTH.unpack_from(view, properties_at - PROPERTIES_LENGTH.size)
        except KeyError:
            raise MalformedRecordError(start, "its magic number is none of a message") from None
        except struct.error:
            raise MalformedRecordError(start, "its lengths lead out of the answer") from None
        if body_bytes < 0 or properties_bytes < 0 or properties_at + properties_bytes > end:
            raise MalformedRecordError(start, "its lengths do not fit its size")
        self.stored_body = bytes(view[body_at : body_at + body_bytes])
        self.topic = str(view[topic_at : topic_at + topic_bytes], "utf-8", "replace")
        self._encoded_properties = bytes(view[properties_at : properties_at + properties_bytes])
        self._properties = self._body = None
        self.broker_name = ""
        return self

    @classmethod
    def of_reply(
        cls, header: ReplyMessageRequestHeader, properties: dict[str, str], body: bytes
    ) -> "ReceivedMessage":
        """The message that a broker hands over as a reply; it stands nowhere."""
        self = cls()
        self.topic, self.queue_id, self.queue_offset = header.topic, header.queue_id, 0
        self.physical_offset = self.store_size = self.body_crc = self.prepared_transaction_offset = 0
        self.sys_flag, self.flag = header.sys_flag, header.flag
        self.born_timestamp, self.store_timestamp = header.born_timestamp, header.store_timestamp
        self.reconsume_times = header.reconsume_times or 0
        self.stored_body, self.broker_name = body, ""
        self._encoded_properties, self._properties, self._body = b"", properties, None
        self._born_host, self._store_host = packed_host(header.born_host), packed_host(header.store_host)
        return self

    @property
    def properties(self) -> dict[str, str]:
        """Names and values, the system's own included."""
        found = self._properties
        if found is None:
            found = self._properties = decode_properties(self._encoded_properties)
        return found

    @property
    def body(self) -> bytes:
        """The body as it was sent.

        Raises:
            CorruptBodyError: it is packed and cannot be unpacked.
        """
        if not self.sys_flag & COMPRESSED:
            return self.stored_body
        if self._body is None:
            place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
            self._body = decompress(self.stored_body, self.sys_flag, place=place)
        return self._body

    @property
    def tags(self) -> str | None:
        """What subscriptions choose by."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> str | None:
        """What queries find it by, separated by spaces."""
        return self.properties.get(names.KEYS)

    @property
    def unique_key(self) -> str | None:
        """The id that its producer gave it."""
        return self.properties.get(names.UNIQUE_KEY)

    @property
    def msg_id(self) -> str:
        """The id that names its place: store host and physical offset."""
        host, port = split_host(self._store_host)
        return encode_message_id(host, port, self.physical_offset)

    @property
    def born_host(self) -> str:
        """`ip:port` of the sender."""
        return host_text(self._born_host)

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
        return host_text(self._store_host)

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"<message {place}, body of {len(self.stored_body)} bytes>"

    def unwrapped(self) -> "Iterator[ReceivedMessage]":
        """The messages of an inner batch; of any other message itself.

        Raises:
            CorruptBodyError: the batch cannot be unpacked.
            MalformedBatchError: it does not hold whole messages.
        """
        if self.sys_flag & BATCH != BATCH:
            yield self
            return
        for number, item in enumerate(decode_batch(self.body)):
            inner = ReceivedMessage()
            for name in ReceivedMessage.__slots__:
                setattr(inner, name, getattr(self, name))
            inner.sys_flag &= ~(BATCH | COMPRESSED)
            inner.stored_body, inner.flag = item.body, item.flag
            inner._encoded_properties, inner._properties = item.properties, None
            inner.queue_offset += number
            yield inner


def decode_records(body: Buffer) -> Iterator[ReceivedMessage]:
    """The messages of a pull's answer; inner batches are taken apart.

    Raises:
        MalformedRecordError: the bytes are no whole records.
    """
    view = memoryview(body)
    start, end = 0, len(view)
    while start < end:
        if end - start < RECORD_MIN_BYTES:
            raise MalformedRecordError(start, "the answer ends within it")
        (size_bytes,) = SIZE.unpack_from(view, start)
        if not RECORD_MIN_BYTES <= size_bytes <= end - start:
            raise MalformedRecordError(start, f"its size cannot be {size_bytes}")
        message = ReceivedMessage.decode(view, start, size_bytes)
        if message.sys_flag & INNER_BATCH:
            yield from message.unwrapped()
        else:
            yield message
        start += size_bytes


def split_host(host: bytes) -> tuple[str, int]:
    """Address and port."""
    return str(ip_address(host[:-4])), SIZE.unpack(host[-4:])[0]


def packed_host(text: str) -> bytes:
    """The form in a record of `ip:port`; zeros where it is none."""
    address, _, port = text.removeprefix("/").rpartition(":")
    try:
        return ip_address(address.strip("[]")).packed + SIZE.pack(int(port))
    except (ValueError, struct.error):
        return bytes(HOST_V4_BYTES)


def host_text(host: bytes) -> str:
    """`ip:port`, an IPv6 address in brackets."""
    address, port = split_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
