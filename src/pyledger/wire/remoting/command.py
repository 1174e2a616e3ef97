"""One command of the remoting protocol: a request, a response, or a one-way request.

The header is JSON (type 0) or binary (type 1); each frame has the type. JSON keys are sorted by name, and
null is left out; all that fastjson reads is read. The binary header is

    code i16 | language u8 | version i16 | opaque i32 | flag i32 | remark length i32 | remark |
    fields length i32 | fields, each: key length i16 | key | value length i32 | value

Differs: Java truncates a code above 32,767 to 16 bits in a binary header; we write that header as JSON.
Differs: an answer is in the type of its request; Java answers in the type that its process is set to.

Source: RocketMQ remoting/.../protocol/RemotingCommand.java, RocketMQSerializable.java.
"""

import json
import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self, TypeVar

from pyledger.errors import FrameError, MalformedJsonError
from pyledger.model.remoting_codes import LanguageCode
from pyledger.wire import fastjson
from pyledger.wire.remoting.bodies.json_body import decode_body
from pyledger.wire.remoting.headers.codec import Header
from pyledger.wire.remoting.native_codec import DecodedRequest, decode_head
from pyledger.wire.remoting.versions import CURRENT_VERSION

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
WORD = struct.Struct(">I")
WORDS = struct.Struct(">II")
BINARY_HEAD = struct.Struct(">hBhiii")
KEY_LENGTH = struct.Struct(">h")
VALUE_LENGTH = struct.Struct(">i")
HEADER_MASK = (1 << 24) - 1
HEADER_MAX_BYTES = 256 << 10
"""Upstream's only limit is that of the frame. The largest header of a message is that of a send whose
properties, 32,767 bytes at most, are all control characters, which take six bytes each in JSON."""
LENIENT_HEADER_MAX_BYTES = 64 << 10
"""Of a header that is not ordinary JSON; no client is known to send one."""
FRAME_LENGTH_MAX = (1 << 31) - 1
CONTAINERS_MIN = 10_000
CONTAINER_BYTES = 16
"""Objects and lists, which cost most, take 24 bytes and more of a request as clients write them."""
CODE_BINARY_MAX = (1 << 15) - 1
NAMES = ("code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version")
KNOWN = frozenset(NAMES)
FOLDED = {name.lower(): name for name in NAMES}
INTEGER_TEXT = re.compile(r"([+-]?[0-9]{1,64})(?:\.0*)?")

Buffer = bytes | bytearray | memoryview
H = TypeVar("H", bound=Header)
T = TypeVar("T")
parse_strictly = json.JSONDecoder(parse_float=str).decode


class SerializeType(IntEnum):
    """How a header is written."""

    JSON = 0
    ROCKETMQ = 1


SERIALIZE_TYPES = tuple(SerializeType)


class RemotingCommand:
    """A request or a response. Whoever makes it may change it; whoever receives it does not.

    Attributes:
        code: The request code, or the result in a response.
        flag: Bit 0 marks a response, bit 1 a request that wants none.
        opaque: Ties a response to its request: 32 bits with a sign, set by the connection that sends.
        language: A `LanguageCode`, None when the peer's is unknown.
        version: The sender's, see `pyledger.wire.remoting.versions`.
        remark: Text for people.
        ext_fields: The header's fields in the order of the wire.
        body: Bytes after the header. Of a received command a view of the frame, which it keeps alive.
        serialize: How the header is or will be written.
    """

    __slots__ = (
        "_document",
        "body",
        "code",
        "ext_fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialize",
        "version",
    )

    def __init__(
        self,
        code: int,
        *,
        flag: int = 0,
        opaque: int = 0,
        language: int | None = LanguageCode.PYTHON,
        version: int = CURRENT_VERSION,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: Buffer = b"",
        serialize: SerializeType = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.flag = flag
        self.opaque = opaque
        self.language = language
        self.version = version
        self.remark = remark
        self.ext_fields = {} if ext_fields is None else ext_fields
        self.body = body
        self.serialize = serialize
        self._document: object = None

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        ext_fields: Mapping[str, str] | None = None,
        oneway: bool = False,
        serialize: SerializeType = SerializeType.JSON,
    ) -> Self:
        """Make a request; `ext_fields` are added to those of the `header`."""
        fields = header.encode(code) if header else {}
        fields.update(ext_fields or {})
        flag = FLAG_ONEWAY if oneway else 0
        return cls(int(code), flag=flag, ext_fields=fields, body=body, serialize=serialize)

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        ext_fields: Mapping[str, str] | None = None,
    ) -> "RemotingCommand":
        """Make the response to this request; `ext_fields` are added to those of the `header`."""
        fields = header.encode(code) if header else {}
        fields.update(ext_fields or {})
        return RemotingCommand(
            int(code),
            flag=FLAG_RESPONSE,
            opaque=self.opaque,
            remark=remark,
            ext_fields=fields,
            body=body,
            serialize=self.serialize,
        )

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether this request wants no response."""
        return bool(self.flag & FLAG_ONEWAY)

    def header(self, kind: type[H]) -> H:
        """The fields as a typed header.

        Raises:
            HeaderFieldError: a required field is missing or cannot be read.
        """
        return kind.decode(self.ext_fields, self.code)

    def body_as(self, kind: type[T]) -> T:
        """The body of a request as an object; it is read once.

        Raises:
            MalformedBodyError: it is none, or has more objects and lists than a client writes in that size.
        """
        if not isinstance(self._document, kind):
            containers_max = CONTAINERS_MIN + len(self.body) // CONTAINER_BYTES
            self._document = decode_body(kind, self.body, containers_max=containers_max)
        return self._document

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way request" if self.is_oneway else "request"
        remark = f" {self.remark!r}" if self.remark else ""
        return (
            f"<{kind} {self.code} #{self.opaque} {self.ext_fields}{remark}, body of {len(self.body)} bytes>"
        )


def encode_head(command: RemotingCommand, body_size_bytes: int | None = None) -> bytes:
    """Encode the part of a frame before its body: the length word, the header word, the header.

    Args:
        command: What to encode. Its body is not copied; it follows as a buffer of its own.
        body_size_bytes: Size of the body when it is not `command.body`.

    Raises:
        FrameError: the header or the frame is larger than its length field allows.
    """
    binary = command.serialize == SerializeType.ROCKETMQ and abs(command.code) <= CODE_BINARY_MAX
    header = encode_binary_header(command) if binary else encode_json_header(command)
    if body_size_bytes is None:
        body = command.body
        body_size_bytes = body.nbytes if isinstance(body, memoryview) else len(body)
    length = 4 + len(header) + body_size_bytes
    if len(header) > HEADER_MAX_BYTES or length > FRAME_LENGTH_MAX:
        sizes = (
            f"a header of {len(header)} bytes, of {HEADER_MAX_BYTES} at most, and a body of {body_size_bytes}"
        )
        raise FrameError(f"{sizes} fit in no frame")
    return WORDS.pack(length, binary << 24 | len(header)) + header


def encode_frame(command: RemotingCommand) -> bytes:
    """Encode a whole frame. Copies the body; for large ones see `encode_head`."""
    return encode_head(command) + command.body


def encode_json_header(command: RemotingCommand) -> bytes:
    """Write the header as fastjson does: keys by name, null left out."""
    pieces = [f'{{"code":{command.code}']
    if command.ext_fields:
        pieces.append(f'"extFields":{fastjson.quoted_map(command.ext_fields)}')
    pieces.append(f'"flag":{command.flag}')
    if command.language is not None:
        pieces.append(f'"language":"{LanguageCode(command.language).name}"')
    pieces.append(f'"opaque":{command.opaque}')
    if command.remark is not None:
        pieces.append(f'"remark":{fastjson.quoted(command.remark)}')
    pieces.append(f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}')
    return ",".join(pieces).encode("utf-8", "replace")


def encode_binary_header(command: RemotingCommand) -> bytes:
    """Write the header in RocketMQ's own form."""
    language = LanguageCode.OTHER if command.language is None else command.language
    remark = (command.remark or "").encode("utf-8", "replace")
    entries: list[bytes] = []
    for key_text, value_text in command.ext_fields.items():
        key, value = key_text.encode("utf-8", "replace"), value_text.encode("utf-8", "replace")
        if len(key) > CODE_BINARY_MAX:
            raise FrameError(f"the name of a header field has {len(key)} bytes")
        entries += (KEY_LENGTH.pack(len(key)), key, VALUE_LENGTH.pack(len(value)), value)
    fields = b"".join(entries)
    head = BINARY_HEAD.pack(
        command.code, language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((head, remark, VALUE_LENGTH.pack(len(fields)), fields))


def command_of(frame: memoryview | DecodedRequest) -> RemotingCommand:
    """What `RequestDecoder` gave, as a command with all its fields.

    Raises:
        FrameError: it is none.
    """
    return decode(frame.frame if isinstance(frame, DecodedRequest) else frame)


def decode(frame: Buffer) -> RemotingCommand:
    """Decode one frame, given without its length word, as `FrameDecoder` gives it.

    The body is a view of the frame. Neither the size of the header nor what it holds is trusted.

    Raises:
        FrameError: the bytes are no frame that RocketMQ reads.
    """
    view = memoryview(frame)
    head = decode_head(view)
    if head is None:
        return decode_in_python(view)
    code, flag, opaque, language, version, remark, ext_fields, kind, at_body = head
    return RemotingCommand(
        code,
        flag=flag,
        opaque=opaque,
        language=language,
        version=version,
        remark=remark,
        ext_fields=ext_fields,
        body=view[at_body:] if at_body < len(view) else b"",
        serialize=SERIALIZE_TYPES[kind],
    )


def decode_in_python(view: memoryview) -> RemotingCommand:
    """Decode one frame, however unusual its header is.

    Raises:
        FrameError: the bytes are no frame that RocketMQ reads.
    """
    if len(view) < WORD.size:
        raise FrameError(f"a frame of {len(view)} bytes has no header")
    (word,) = WORD.unpack_from(view)
    size = word & HEADER_MASK
    end = WORD.size + size
    if end > len(view):
        raise FrameError(f"a header of {size} bytes in a frame of {len(view)}")
    if size > HEADER_MAX_BYTES:
        raise FrameError(f"a header of {size} bytes, of {HEADER_MAX_BYTES} at most")
    header = bytes(view[WORD.size : end])
    kind = word >> 24
    if kind == SerializeType.JSON:
        command = decode_json_header(header)
    elif kind == SerializeType.ROCKETMQ:
        command = decode_binary_header(header)
    else:
        raise FrameError(f"the serialize type {kind} is unknown")
    if end < len(view):
        command.body = view[end:]
    return command


def decode_json_header(header: bytes) -> RemotingCommand:
    """Read a header as fastjson does.

    Raises:
        FrameError: it would not.
    """
    found = parsed_object(str(header, "utf-8", "replace"))
    if not found.keys() <= KNOWN:
        found = {FOLDED.get(fastjson.folded(name), name): value for name, value in found.items()}
    remark = found.get("remark")
    return RemotingCommand(
        number(found.get("code")),
        flag=number(found.get("flag")),
        opaque=number(found.get("opaque")),
        language=language_of(found.get("language", "JAVA")),
        version=number(found.get("version")),
        remark=remark if remark is None else text_of(remark),
        ext_fields=ext_fields_of(found.get("extFields")),
    )


def parsed_object(text: str) -> dict[Any, Any]:
    """The object that a text holds: ordinary JSON at full speed, fastjson's dialect otherwise."""
    try:
        found = parse_strictly(text)
    except ValueError:
        if len(text) > LENIENT_HEADER_MAX_BYTES:
            raise FrameError(f"a header of {len(text)} characters is not ordinary JSON") from None
        try:
            found = fastjson.parse_without_references(text)
        except MalformedJsonError as problem:
            raise FrameError(f"the header is no JSON: {problem}") from None
    except RecursionError:
        raise FrameError("the header is nested too deeply") from None
    if not isinstance(found, dict):
        raise FrameError("the header is no JSON object")
    return found


def number(value: object) -> int:
    """A number of 32 bits: null is 0, text that holds one is taken.

    Raises:
        FrameError: it is none.
    """
    if isinstance(value, str) and (match := INTEGER_TEXT.fullmatch(value)):
        value = int(match[1])
    elif value is None or value in ("", "null", "NULL"):
        value = 0
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31:
        raise FrameError(f"a header has {str(value)[:100]!r} where a number of 32 bits is due")
    return int(value)


def language_of(value: object) -> int | None:
    """Return a language by its name or number; None if it is unknown."""
    if isinstance(value, str):
        return LanguageCode.__members__.get(value.upper())
    return value if isinstance(value, int) and 0 <= value <= max(LanguageCode) else None


def ext_fields_of(value: object) -> dict[str, str]:
    """Fields as text, null left out.

    Raises:
        FrameError: it is no object.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FrameError("extFields is no JSON object")
    return {
        key if isinstance(key, str) else str(key): one if isinstance(one, str) else text_of(one)
        for key, one in value.items()
        if one is not None
    }


def text_of(value: object) -> str:
    """A value as text: what is no text is written as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise FrameError("a header field holds itself, or is nested too deeply") from None


def decode_binary_header(header: bytes) -> RemotingCommand:
    """Read a header in RocketMQ's own form.

    Raises:
        FrameError: a length does not fit.
    """
    try:
        code, language, version, opaque, flag, remark_size = BINARY_HEAD.unpack_from(header)
        at = BINARY_HEAD.size + remark_size
        (fields_size,) = VALUE_LENGTH.unpack_from(header, at)
    except struct.error:
        raise FrameError(f"a binary header of {len(header)} bytes ends too early") from None
    if remark_size < 0 or at + VALUE_LENGTH.size + fields_size != len(header):
        raise FrameError("the lengths of a binary header do not add up")
    remark = str(header[BINARY_HEAD.size : at], "utf-8", "replace") if remark_size else None
    return RemotingCommand(
        code,
        flag=flag,
        opaque=opaque,
        language=language if language <= max(LanguageCode) else None,
        version=version,
        remark=remark,
        ext_fields=decode_fields(header, at + VALUE_LENGTH.size),
        serialize=SerializeType.ROCKETMQ,
    )


def decode_fields(header: bytes, at: int) -> dict[str, str]:
    """The fields of a binary header from a position to its end. What is empty here, Java takes for null.

    Raises:
        FrameError: a length does not fit.
    """
    fields = {}
    while at < len(header):
        try:
            (key_size,) = KEY_LENGTH.unpack_from(header, at)
            value_at = at + KEY_LENGTH.size + key_size
            (value_size,) = VALUE_LENGTH.unpack_from(header, value_at)
        except struct.error:
            raise FrameError("a binary header ends within a field") from None
        end = value_at + VALUE_LENGTH.size + value_size
        if key_size < 0 or value_size < 0 or end > len(header):
            raise FrameError("a field of a binary header has a wrong length")
        key = str(header[at + KEY_LENGTH.size : value_at], "utf-8", "replace")
        fields[key] = str(header[value_at + VALUE_LENGTH.size : end], "utf-8", "replace")
        at = end
    return fields
