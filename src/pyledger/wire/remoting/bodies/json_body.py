"""From typed bodies to the JSON of Java's fastjson and back.

A body is a frozen dataclass. Its fields are Java's, in snake case; annotations give their types: `str`,
`bool`, `Int`, `Long`, `Real`, an enumeration, another dataclass, `tuple[X, ...]` for lists and sets,
`Mapping[K, V]`, `Any`. Four types of our own travel as Java's: `MessageQueue`, `DataVersion`,
`TopicConfig`, `SubscriptionGroup`.

Reading is as lenient as fastjson: names in any case, numbers as text, null and missing fields take the
default, undeclared ones are ignored. Writing has two forms. The default is what Java writes: integers
as keys have no quotes, and a message queue as a key is an object, `{{"queueId":0,…}:5}`; every client
reads that, because Java sends it. The standard form is JSON for all: those keys are text, keys of maps are
sorted, and `/` and what is not ASCII are escaped.

Source: RocketMQ remoting/.../protocol/RemotingSerializable.java; fastjson JavaBeanDeserializer,
MapSerializer.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from enum import IntFlag, StrEnum
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

from pyledger.errors import MalformedBodyError, MalformedJsonError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import MessageQueue
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import DataVersion, TopicConfig
from pyledger.wire import fastjson
from pyledger.wire.remoting.headers.codec import camel_case

TRUE_TEXTS = frozenset({"true", "1", "y", "yes", "t"})
FALSE_TEXTS = frozenset({"false", "0", "n", "no", "f"})

Buffer = bytes | bytearray | memoryview
Reader = Callable[[Any], Any]
T = TypeVar("T")


class MismatchError(Exception):
    """A value is not what a field holds. Grows a path on its way out."""

    def __init__(self, problem: str) -> None:
        self.problem, self.path = problem, ""
        super().__init__(problem)

    def under(self, name: object) -> "MismatchError":
        """The same, seen from one level above."""
        self.path = f".{str(name)[:100]}{self.path}"
        return self


class BodyField(NamedTuple):
    """How one field is read and written."""

    attribute: str
    wire_name: str
    read: Reader
    required: bool


@lazy_dataclass(kw_only=True)
class Body:
    """Base of all bodies."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}
    """Names that are not Java's way of writing the attribute."""

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """Read a body.

        Raises:
            MalformedBodyError: it is not JSON, or a value does not fit its field; names the position.
        """
        return decode_body(cls, body)

    def encode(self, *, standard: bool = False) -> bytes:
        """Write a body, as Java does or, with `standard`, as any reader of JSON wants it."""
        return encode_body(self, standard=standard)


def decode_body(kind: type[T], body: Buffer, *, containers_max: int = fastjson.ANY_NUMBER) -> T:
    """Read a body that is any type of which a field may be, as `Body.decode` does."""
    try:
        document = fastjson.parse(str(body, "utf-8", "replace"), containers_max=containers_max)
        found: T = reader_of(kind)(document)
    except MalformedJsonError as problem:
        raise MalformedBodyError(kind.__name__, "", str(problem)) from None
    except MismatchError as problem:
        raise MalformedBodyError(kind.__name__, problem.path, problem.problem) from None
    return found


def encode_body(value: object, *, standard: bool = False) -> bytes:
    """Write an object of any dataclass, or a map, as `Body.encode` does."""
    if standard:
        return standard_json(document_of(value)).encode()
    return java_json(document_of(value)).encode("utf-8", "replace")


def read_object(kind: type, document: Any) -> Any:
    """Read an object of a dataclass."""
    if not isinstance(document, dict):
        raise MismatchError("an object is expected")
    values: dict[str, Any] = {}
    fields = fields_of(kind)
    if not document.keys() <= {field.wire_name for field in fields}:
        document = {fastjson.folded(name): value for name, value in document.items()} | document
    for attribute, wire_name, read, required in fields:
        value = document.get(wire_name)
        if value is None:
            value = document.get(wire_name.lower(), document.get(attribute.replace("_", "")))
        try:
            if value is not None and (found := read(value)) is not None:
                values[attribute] = found
            elif required:
                raise MismatchError("is missing")
        except MismatchError as problem:
            raise problem.under(wire_name) from None
    return kind(**values)


FOREIGN_NAMES: dict[type, Mapping[str, str]] = {}
"""`WIRE_NAMES` of dataclasses that do not know how they travel."""
FIELDS: dict[type, tuple[BodyField, ...]] = {}


def fields_of(kind: type) -> tuple[BodyField, ...]:
    """The fields of a dataclass in the order of writing, which is that of their names."""
    fields = FIELDS.get(kind)
    if fields is None:
        hints = get_type_hints(kind, include_extras=True)
        names: Mapping[str, str] = getattr(kind, "WIRE_NAMES", FOREIGN_NAMES.get(kind, {}))
        described = [
            BodyField(
                field.name,
                names.get(field.name, camel_case(field.name)),
                reader_of(hints[field.name]),
                field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
            )
            for field in dataclasses.fields(kind)
        ]
        fields = FIELDS[kind] = tuple(sorted(described, key=lambda field: field.wire_name))
    return fields


def reader_of(annotation: Any) -> Reader:
    """What reads a value of an annotation."""
    arguments = get_args(annotation)
    if NoneType in arguments:
        return reader_of(next(one for one in arguments if one is not NoneType))
    origin = get_origin(annotation)
    if origin is Annotated:
        plain, detail = arguments
        return read_real if plain is float else {32: read_int, 64: read_long}[detail]
    if origin is tuple:
        one = reader_of(arguments[0])
        return lambda value: read_list(value, one)
    if origin is not None and issubclass(origin, Mapping):
        key, one = reader_of(arguments[0]), reader_of(arguments[1])
        return lambda value: read_map(value, key, one)
    if annotation in READERS:
        return READERS[annotation]
    return reader_of_class(annotation)


def reader_of_class(annotation: Any) -> Reader:
    """What reads a value of an enumeration or a dataclass."""
    if issubclass(annotation, IntFlag):
        return lambda value: annotation(read_int(value))
    if issubclass(annotation, StrEnum):
        return lambda value: read_member(value, annotation)
    assert isinstance(annotation, type), annotation
    return lambda value: read_object(annotation, value)


def read_list(value: Any, read: Reader) -> tuple[Any, ...]:
    """A list or a set; nulls in it are left out."""
    if not isinstance(value, list):
        raise MismatchError("a list is expected")
    found = []
    for number, one in enumerate(value):
        try:
            if one is not None:
                found.append(read(one))
        except MismatchError as problem:
            raise problem.under(number) from None
    return tuple(found)


def read_map(value: Any, key: Reader, read: Reader) -> dict[Any, Any]:
    """A map; entries whose value is null are left out."""
    if not isinstance(value, dict):
        raise MismatchError("an object is expected")
    found = {}
    for name, one in value.items():
        try:
            if one is not None:
                found[key(name)] = read(one)
        except MismatchError as problem:
            raise problem.under(name) from None
    return found


def read_text(value: Any) -> str:
    """Text; what is none is written as JSON."""
    if isinstance(value, str):
        return value
    try:
        return fastjson.compact(value)
    except (ValueError, RecursionError):
        raise MismatchError("a text is expected") from None


def read_number(value: Any, bits: int) -> int:
    """Read a number of this many bits, also as text or with a fraction, which is truncated."""
    if isinstance(value, str):
        try:
            value = int(value) if len(value) <= 64 else value
        except ValueError:
            value = parsed_real(value)
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise MismatchError(f"a number of {bits} bits is expected")
    return int(value)


def read_int(value: Any) -> int:
    """A number of 32 bits."""
    return read_number(value, 32)


def read_long(value: Any) -> int:
    """A number of 64 bits."""
    return read_number(value, 64)


def parsed_real(text: str) -> float | None:
    """A floating-point number; None when the text is none."""
    try:
        return float(text)
    except ValueError:
        return None


def read_real(value: Any) -> float:
    """A floating-point number."""
    found = parsed_real(value) if isinstance(value, str) else value
    try:
        if found is not None:
            return float(found)
    except (TypeError, OverflowError):
        pass
    raise MismatchError("a number is expected")


def read_bool(value: Any) -> bool:
    """A boolean, also as a number or text."""
    text = str(value).lower() if isinstance(value, str | int) else ""
    if text in TRUE_TEXTS:
        return True
    if text in FALSE_TEXTS or isinstance(value, int):
        return False
    raise MismatchError("true or false is expected")


def read_member(value: Any, kind: type[StrEnum]) -> StrEnum | None:
    """Return a member of an enumeration by its name or number; an unknown name counts as null."""
    members = list(kind)
    if isinstance(value, int) and 0 <= value < len(members):
        return members[value]
    if isinstance(value, str):
        return next((member for member in members if member.value == value), None)
    raise MismatchError(f"one of {', '.join(members)} is expected")


def read_queue(value: Any) -> MessageQueue:
    """A message queue; as the key of a map it is the text of one."""
    if isinstance(value, str):
        try:
            value = fastjson.parse(value)
        except MalformedJsonError:
            raise MismatchError("a message queue is expected") from None
    named = {fastjson.folded(name): one for name, one in value.items()} if isinstance(value, dict) else {}
    topic, broker, queue = (named.get(name) for name in ("topic", "brokername", "queueid"))
    if topic is None:
        raise MismatchError("a message queue is expected")
    return MessageQueue(read_text(topic), read_text(broker or ""), read_int(queue or 0))


def read_version(value: Any) -> DataVersion:
    """The version of a table."""
    if not isinstance(value, dict):
        raise MismatchError("an object is expected")
    return DataVersion(
        *(read_long(value.get(name) or 0) for name in ("counter", "stateVersion", "timestamp"))
    )


def read_topic(value: Any) -> TopicConfig:
    """A topic."""
    if not isinstance(value, dict):
        raise MismatchError("an object is expected")
    try:
        return TopicConfig.parse("", {name: one for name, one in value.items() if one is not None})
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise MismatchError("a topic is expected") from None


def read_group(value: Any) -> SubscriptionGroup:
    """Read a consumer group; missing fields have their defaults."""
    if not isinstance(value, dict):
        raise MismatchError("an object is expected")
    model = SubscriptionGroup("").document()
    found = {}
    for name, one in value.items():
        read = READERS.get(type(model.get(name)), READERS[Any])
        try:
            found[name] = read(one)
        except MismatchError as problem:
            raise problem.under(name) from None
    try:
        return SubscriptionGroup.parse("", found)
    except (ValueError, TypeError):
        raise MismatchError("a consumer group is expected") from None


READERS: dict[Any, Reader] = {
    Any: lambda value: value,
    str: read_text,
    bool: read_bool,
    int: read_long,
    float: read_real,
    MessageQueue: read_queue,
    DataVersion: read_version,
    TopicConfig: read_topic,
    SubscriptionGroup: read_group,
}


def document_of(value: Any) -> Any:
    """A value as JSON has it, but with message queues and integers as keys."""
    if isinstance(value, MessageQueue):
        return {"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic}
    if isinstance(value, DataVersion | TopicConfig | SubscriptionGroup):
        return value.document()
    if dataclasses.is_dataclass(value):
        fields = ((one.wire_name, getattr(value, one.attribute)) for one in fields_of(type(value)))
        return {name: document_of(one) for name, one in fields if one is not None}
    if isinstance(value, Mapping):
        return {key: document_of(one) for key, one in value.items() if one is not None}
    if isinstance(value, tuple | list):
        return [document_of(one) for one in value]
    return value


def java_json(document: Any) -> str:
    """Write a document as fastjson does."""
    return "".join(java_pieces(document))


def java_pieces(document: Any) -> Iterator[str]:
    """The pieces of one value."""
    if isinstance(document, Mapping):
        separator = "{"
        for key, value in document.items():
            if isinstance(key, MessageQueue):
                yield f"{separator}{java_json(document_of(key))}:"
            else:
                yield f"{separator}{key if isinstance(key, int) else fastjson.quoted(key)}:"
            yield from java_pieces(value)
            separator = ","
        yield "}" if document else "{}"
    elif isinstance(document, list):
        separator = "["
        for value in document:
            yield separator
            yield from java_pieces(value)
            separator = ","
        yield "]" if document else "[]"
    elif isinstance(document, str):
        yield fastjson.quoted(document)
    else:
        yield json.dumps(document)


def standard_json(document: Any) -> str:
    """Write a document as Java does for readers of plain JSON."""
    text = json.dumps(with_text_keys(document), sort_keys=True, separators=(",", ":"))
    return text.replace("/", "\\/")


def with_text_keys(document: Any) -> Any:
    """The same document with keys that are all text."""
    if isinstance(document, Mapping):
        return {
            java_json(document_of(key)) if isinstance(key, MessageQueue) else str(key): with_text_keys(value)
            for key, value in document.items()
        }
    return [with_text_keys(one) for one in document] if isinstance(document, list) else document
