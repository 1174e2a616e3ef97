"""Records of the commit log as a pull answers them, one after the other.

`size i32 | magic i32 | body crc i32 | queue id i32 | flag i32 | queue offset i64 | physical offset i64 |
sysFlag i32 | born time i64 | born host | store time i64 | store host | reconsume times i32 | prepared
transaction offset i64 | body length i32 | body | topic length u8 (V2: u16) | topic | properties length i16 |
properties`. A host is 4 or 16 bytes of address, depending on sysFlag, and a port of 4 bytes.

Only the header is decoded at once; properties and a compressed body are decoded on first access.

Source: RocketMQ common/.../MessageDecoder.java (decode, decodes, decodeMessage).
"""

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from pyledger.model import names
from pyledger.model.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from pyledger.wire.compression import decompress
from pyledger.wire.record.batch import decode_batch
from pyledger.wire.record.message_id import encode_message_id
from pyledger.wire.record.properties import decode_properties
from pyledger.wire.remoting.headers.send import ReplyMessageRequestHeader
from pyledger.wire.remoting.native_codec import ReceivedRecord, read_records

HOST_V4_BYTES = 8
BATCH = INNER_BATCH | NEED_UNWRAP
PORT = struct.Struct(">i")

Buffer = bytes | bytearray | memoryview
KEPT = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "sys_flag",
    "flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "stored_body",
    "properties",
    "broker_name",
    "packed_born_host",
    "packed_store_host",
)
"""What a pickle of a message has."""


class ReceivedMessage(ReceivedRecord):
    """A message as a consumer has it.

    Attributes:
        topic: Where the sender put it; of a retried message the topic it came from.
        queue_id: Queue of the topic.
        queue_offset: Place in the queue.
        physical_offset: Place in the commit log of the broker, in bytes.
        store_size: Bytes of the record.
        sys_flag: See `pyledger.model.sys_flag`.
        flag: The sender's own number.
        born_timestamp: When it was made, ms by the sender's clock.
        store_timestamp: When it was stored, ms by the broker's clock.
        reconsume_times: How often a consumer of the group has failed.
        prepared_transaction_offset: Physical offset of the half message it came from.
        body_crc: CRC-32 of the stored body, 31 bits.
        stored_body: The body as it is stored, perhaps compressed.
        body_length: Bytes of that.
        body: The body as it was sent; accessing one that cannot be decompressed raises
            CorruptBodyError.
        properties: Names and values, the system's own included.
        broker_name: Who it came from; set by a client.
    """

    __slots__ = ()

    @classmethod
    def of_reply(
        cls, header: ReplyMessageRequestHeader, properties: dict[str, str], body: bytes
    ) -> "ReceivedMessage":
        """Return the message that a broker delivers as a reply; it is not stored."""
        self = cls()
        self.topic, self.queue_id = header.topic, header.queue_id
        self.sys_flag, self.flag = header.sys_flag, header.flag
        self.born_timestamp, self.store_timestamp = header.born_timestamp, header.store_timestamp
        self.reconsume_times = header.reconsume_times or 0
        self.stored_body, self.broker_name, self.properties = body, "", properties
        self.packed_born_host = packed_host(header.born_host)
        self.packed_store_host = packed_host(header.store_host)
        return self

    def decompressed(self) -> bytes:
        """Return the body as it was sent, if it is stored compressed; `body` caches it.

        Raises:
            CorruptBodyError: it cannot be decompressed.
        """
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return decompress(self.stored_body, self.sys_flag, place=place)

    @property
    def tags(self) -> str | None:
        """What subscriptions choose by."""
        return self.property(names.TAGS)

    @property
    def keys(self) -> str | None:
        """What queries find it by, separated by spaces."""
        return self.property(names.KEYS)

    @property
    def unique_key(self) -> str | None:
        """The id that its producer gave it."""
        return self.property(names.UNIQUE_KEY)

    @property
    def msg_id(self) -> str:
        """The id with its location: store host and physical offset."""
        host, port = split_host(self.packed_store_host)
        return encode_message_id(host, port, self.physical_offset)

    @property
    def born_host(self) -> str:
        """`ip:port` of the sender."""
        return host_text(self.packed_born_host)

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
        return host_text(self.packed_store_host)

    def __reduce__(self) -> tuple[Any, ...]:
        """As a pickle: all attributes, bytes and properties decoded."""
        return restored, (type(self), {name: getattr(self, name) for name in KEPT})

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"<message {place}, body of {self.body_length} bytes>"

    def unwrapped(self) -> "Iterator[ReceivedMessage]":
        """The messages of an inner batch; of any other message itself.

        Raises:
            CorruptBodyError: the batch cannot be decompressed.
            MalformedBatchError: it does not hold whole messages.
        """
        if self.sys_flag & BATCH != BATCH:
            yield self
            return
        for number, item in enumerate(decode_batch(self.body)):
            inner = self.copied()
            inner.sys_flag &= ~(BATCH | COMPRESSED)
            inner.stored_body, inner.flag = item.body, item.flag
            inner.properties = decode_properties(item.properties)
            inner.queue_offset += number
            yield inner


def restored(kind: type[ReceivedMessage], attributes: dict[str, Any]) -> ReceivedMessage:
    """A message from its pickle."""
    message = kind()
    for name, value in attributes.items():
        setattr(message, name, value)
    return message


def decode_record(record: Buffer) -> ReceivedMessage:
    """One record as it is, an inner batch too.

    Raises:
        MalformedRecordError: the bytes are no whole record.
    """
    [message], _ = read_records(bytes(record), ReceivedMessage, "")
    return message


def decode_records(
    body: Buffer, broker_name: str = "", queue_id: int | None = None, delta: int = 0
) -> list[ReceivedMessage]:
    """The messages of a pull's answer; inner batches are taken apart.

    Args:
        body: The messages keep it, or a copy of what is no `bytes`.
        broker_name: Who it came from.
        queue_id: Queue that was pulled; None: the one of the record.
        delta: Added to queue offsets.

    Raises:
        MalformedRecordError: the bytes are no whole records.
    """
    data = body if isinstance(body, bytes) else bytes(body)
    found, has_batches = read_records(data, ReceivedMessage, broker_name, queue_id, delta)
    if has_batches:
        return [inner for message in found for inner in message.unwrapped()]
    return found


def split_host(host: bytes) -> tuple[str, int]:
    """Address and port."""
    return str(ip_address(host[:-4])), PORT.unpack(host[-4:])[0]


def packed_host(text: str) -> bytes:
    """The form in a record of `ip:port`; zeros where it is none."""
    address, _, port = text.removeprefix("/").rpartition(":")
    try:
        return ip_address(address.strip("[]")).packed + PORT.pack(int(port))
    except (ValueError, struct.error):
        return bytes(HOST_V4_BYTES)


def host_text(host: bytes) -> str:
    """`ip:port`, an IPv6 address in brackets."""
    address, port = split_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
