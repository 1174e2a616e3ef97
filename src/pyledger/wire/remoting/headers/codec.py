"""From typed headers to the text fields of a command and back.

A header is a frozen dataclass. Its fields are Java's, in snake case; annotations define how text is parsed:

| annotation | Java        | text                                                     |
|------------|-------------|----------------------------------------------------------|
| `str`      | String      | as it is                                                 |
| `Int`      | int         | decimal, within 32 bits                                  |
| `Long`     | long        | decimal, within 64 bits                                  |
| `bool`     | boolean     | `true` in any case is true, everything else is false     |
| `Real`     | double      | decimal                                                  |
| a `StrEnum`| enum        | a member in any case, everything else is the default     |

`None` is not written. A field without a default is required. A field that has one takes it when the text is
missing or cannot be read. Undeclared fields are ignored.

Differs: Java leaves a required field at null and fails later, wherever it is used; we name the field.

Source: RocketMQ remoting/.../protocol/RemotingCommand.java (decodeCommandCustomHeader,
makeCustomHeaderToNet).
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from pyledger.errors import HeaderFieldError
from pyledger.model.lazy_dataclass import lazy_dataclass

INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?")

Int = Annotated[int, 32]
Long = Annotated[int, 64]
Real = Annotated[float, "double"]


class FieldCodec(NamedTuple):
    """How one field is read."""

    attribute: str
    wire_name: str
    parse: Callable[[str], Any]
    required: bool


@lazy_dataclass(kw_only=True)
class Header:
    """Base of all headers."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}
    """Names that are not Java's way of writing the attribute."""
    SHORT_NAMES: ClassVar[Mapping[str, str]] = {}
    """Names under the codes of `SHORT_CODES`; a field without one does not travel then."""
    SHORT_CODES: ClassVar[frozenset[int]] = frozenset()

    @classmethod
    def decode(cls, ext_fields: Mapping[str, str], code: int = 0) -> Self:
        """Read the fields of a command.

        Args:
            ext_fields: As in the command.
            code: The command's code, which may imply short names.

        Raises:
            HeaderFieldError: a required field is missing or cannot be read.
        """
        return cls(**parsed(cls, fields_of(cls, code in cls.SHORT_CODES), ext_fields))

    def encode(self, code: int = 0) -> dict[str, str]:
        """Write the fields for a command with a `code`, in their order."""
        return written(self, fields_of(type(self), code in self.SHORT_CODES))


@lazy_dataclass(kw_only=True)
class RpcHeader(Header):
    """What almost every request to a broker may carry. A server needs none of it unless a topic is static."""

    bname: str | None = None
    """Name of the broker that is meant."""
    ns: str | None = None
    nsd: bool | None = None
    oway: bool | None = None
    lo: bool | None = None


def parsed(kind: type, fields: tuple[FieldCodec, ...], ext_fields: Mapping[str, str]) -> dict[str, Any]:
    """Values by attribute; what has to take its default is left out."""
    values: dict[str, Any] = {}
    for attribute, wire_name, parse, required in fields:
        text = ext_fields.get(wire_name)
        if text is not None:
            try:
                values[attribute] = parse(text)
            except ValueError:
                if required:
                    raise HeaderFieldError(kind.__name__, wire_name, text) from None
        elif required:
            raise HeaderFieldError(kind.__name__, wire_name, None)
    return values


def written(header: object, fields: tuple[FieldCodec, ...]) -> dict[str, str]:
    """Text by wire name."""
    texts = {}
    for attribute, wire_name, _, _ in fields:
        value = getattr(header, attribute)
        if value is not None:
            texts[wire_name] = ("false", "true")[value] if isinstance(value, bool) else str(value)
    return texts


CODECS: dict[tuple[type[Header], bool], tuple[FieldCodec, ...]] = {}


def fields_of(kind: type[Header], short: bool = False) -> tuple[FieldCodec, ...]:
    """The fields of a header in the order of writing: its own, then the inherited ones."""
    codec = CODECS.get((kind, short))
    if codec is None:
        codec = CODECS[kind, short] = described_fields(kind, short)
    return codec


def described_fields(kind: type[Header], short: bool) -> tuple[FieldCodec, ...]:
    """Work out what `fields_of` keeps."""
    hints = get_type_hints(kind, include_extras=True)
    described = {field.name: field for field in dataclasses.fields(kind)}
    inherited = {field.name for field in dataclasses.fields(RpcHeader)}
    names = kind.SHORT_NAMES
    if not short:
        order = sorted(described, key=inherited.__contains__)
        names = {name: kind.WIRE_NAMES.get(name, camel_case(name)) for name in order}
    return tuple(
        FieldCodec(name, wire_name, parser_of(hints[name]), described[name].default is dataclasses.MISSING)
        for name, wire_name in names.items()
    )


def camel_case(name: str) -> str:
    """Java's name of a field."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def parser_of(annotation: Any) -> Callable[[str], Any]:
    """What reads the text of a field."""
    if get_origin(annotation) is UnionType or NoneType in get_args(annotation):
        (annotation,) = (one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Annotated:
        plain, detail = get_args(annotation)
        return parse_real if plain is float else {32: parse_int, 64: parse_long}[detail]
    if annotation is bool:
        return parse_bool
    if annotation is str:
        return str
    assert issubclass(annotation, StrEnum), annotation
    members = {member.value.lower(): member for member in annotation}
    return lambda text: parse_member(members, text)


def parse_int(text: str) -> int:
    """A number of 32 bits."""
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    if INTEGER.fullmatch(text) and -(1 << 31) <= (number := int(text)) < 1 << 31:
        return number
    raise ValueError


def parse_long(text: str) -> int:
    """A number of 64 bits."""
    if len(text) < 19 and text.isdigit() and text.isascii():
        return int(text)
    if INTEGER.fullmatch(text) and -(1 << 63) <= (number := int(text)) < 1 << 63:
        return number
    raise ValueError


def parse_bool(text: str) -> bool:
    """Java's reading: whatever is not `true` is false."""
    return text.lower() == "true"


def parse_real(text: str) -> float:
    """A floating-point number."""
    if REAL.fullmatch(text):
        return float(text)
    raise ValueError


def parse_member(members: Mapping[str, StrEnum], text: str) -> StrEnum:
    """A member of an enumeration by its name in lower case."""
    try:
        return members[text.lower()]
    except KeyError:
        raise ValueError from None
