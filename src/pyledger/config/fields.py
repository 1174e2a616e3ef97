"""One setting: a dataclass field with unit, range and upstream's name, and the checks of its value."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from reprlib import repr as shortened
from types import NoneType, UnionType
from typing import Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform, get_args

from pyledger.errors import ConfigError

T = TypeVar("T", bool, int, str)
INT64_MAX = (1 << 63) - 1
TRUE = {"true", "1", "yes", "on"}
FALSE = {"false", "0", "no", "off"}


class Settings(Protocol):
    """A class made by `settings_class` whose fields are all made by `setting`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


V = TypeVar("V")
C = TypeVar("C", bound=str)
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a settings class, for checks and for the generated page."""

    name: str
    default: Any
    unit: str
    range: tuple[int, int] | None
    choices: Mapping[str, str] | None
    """Upstream's word for each of our words."""
    upstream: str | None
    """The same setting in upstream's configuration; None where upstream has none."""
    aliases: tuple[str, ...] = ()
    """Its names in older versions of upstream."""
    upstream_factor: int = 1
    """Our value is upstream's times this: 1,048,576 where upstream counts MiB, 100 where it is a fraction."""

    @property
    def names(self) -> tuple[str, ...]:
        """All accepted names: ours, upstream's, and those of older versions."""
        return (self.name, *((self.upstream,) if self.upstream else ()), *self.aliases)


@dataclass(frozen=True, slots=True)
class Fixed:
    """An upstream setting about the location or safety of data, of which only some values are supported."""

    allowed: tuple[str, ...] | None
    """Accepted values, compared without regard to case. None: any."""
    remedy: str = ""
    """What to do instead of setting another value."""


ANY = Fixed(None)
"""An ignored setting whose name would otherwise be taken for a misspelt known one."""


def setting(
    default: T,
    *,
    unit: str = "",
    range: tuple[int, int] | None = None,  # noqa: A002 - the word of the field
    choices: Mapping[str, str] | None = None,
    upstream: str | None,
    aliases: tuple[str, ...] = (),
    upstream_factor: int = 1,
) -> T:
    """Make the dataclass field of one setting.

    Args:
        default: Upstream's default; if another, the docstring of the field explains it.
        unit: What an integer counts.
        range: Lowest and highest value, both allowed.
        choices: Allowed values of a string, each with upstream's word for it.
        upstream: Name of the setting in upstream's configuration.
        aliases: Its names in older versions of upstream.
        upstream_factor: Our value is upstream's times this.
    """
    metadata = {
        "unit": unit,
        "range": range,
        "choices": choices,
        "upstream": upstream,
        "aliases": aliases,
        "upstream_factor": upstream_factor,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_class(kind: type[S]) -> type[S]:
    """Decorate a settings class like `dataclass(frozen=True, slots=True, kw_only=True)`.

    Its constructor raises ConfigError for an unknown name and suggests one, as files of settings do.
    """
    made: Any = dataclass(frozen=True, slots=True, kw_only=True)(kind)
    assign = made.__init__

    @wraps(assign)
    def __init__(self: S, *unnamed: object, **values: object) -> None:  # noqa: N807 - it becomes the method
        if unnamed:
            raise ConfigError(made.__name__, f"{shortened(unnamed[0])} is given without a name", NAMED)
        for name in values:
            if name not in made.__dataclass_fields__:
                raise unknown_setting(made, name)
        assign(self, **values)

    made.__init__ = __init__
    found: type[S] = made
    return found


NAMED = "write name=value"


def settings_of(kind: type[Settings]) -> tuple[Setting, ...]:
    """Return all settings of a class, in the order of their declaration."""
    return tuple(Setting(f.name, f.default, **f.metadata) for f in dataclasses.fields(kind))


def check(config: Settings) -> None:
    """Check every field for type, range and choice; called by `__post_init__`.

    Raises:
        ConfigError: A value is invalid; the error contains the field, the value and what is allowed.
    """
    for one in settings_of(type(config)):
        value: Any = getattr(config, one.name)
        if type(value) is not type(one.default):
            raise ConfigError(one.name, f"{value!r} is not of type {type(one.default).__name__}")
        if one.range is not None and not one.range[0] <= value <= one.range[1]:
            allowed = f"{one.range[0]} to {one.range[1]} {one.unit}".rstrip()
            raise ConfigError(one.name, f"{value} is out of range", f"allowed is {allowed}")
        if one.choices is not None and value not in one.choices:
            raise ConfigError(one.name, f"{value!r} is unknown", "choose one of " + ", ".join(one.choices))


def convert(one: Setting, name: str, value: object) -> object:
    """Convert text to the type of the setting, and upstream's word or unit to ours; keep other values.

    Args:
        one: The setting.
        name: The name under which the value was given.
        value: The value from a file, a variable or an option.
    """
    if one.upstream_factor != 1 and name != one.name:
        return _converted_unit(one, value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if isinstance(one.default, bool):
        if text.lower() not in TRUE | FALSE:
            raise ConfigError(one.name, f"{value!r} is neither true nor false")
        return text.lower() in TRUE
    if isinstance(one.default, int):
        try:
            return int(text.replace("_", ""))
        except ValueError:
            raise ConfigError(one.name, f"{value!r} is not a whole number") from None
    for ours, theirs in (one.choices or {}).items():
        if text == theirs:
            return ours
    return value


def _converted_unit(one: Setting, value: object) -> int:
    """Convert a value from upstream's unit to ours."""
    from decimal import Decimal  # noqa: PLC0415 - rarely needed

    try:
        number = Decimal(str(value).strip()) * one.upstream_factor
        if abs(number) <= INT64_MAX:
            return int(number.to_integral_value())
    except ArithmeticError:
        raise ConfigError(one.name, f"{value!r} is not a number") from None
    raise ConfigError(one.name, f"{value!r} is out of range")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name."""
    import difflib  # noqa: PLC0415 - only needed for errors

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else "see docs/reference/config.md for all settings"


def unknown_setting(kind: type[Settings], name: str) -> ConfigError:
    """Return the error for a name that is not one of ours; upstream's name leads to ours."""
    ours = {name: one.name for one in settings_of(kind) for name in one.names}
    remedy = f"did you mean {ours[name]}?" if name in ours else suggestion(name, set(ours.values()))
    return ConfigError(name, "unknown setting", remedy)


def build(kind: type[S], options: Mapping[str, object]) -> S:
    """Build settings from options by our names or upstream's.

    Args:
        kind: The settings class.
        options: Values by name. Text is converted to the type of the field.

    Raises:
        ConfigError: A name is unknown (the message suggests one) or given twice, or a value is invalid.
    """
    known = settings_of(kind)
    by_name = {name: one for one in known for name in one.names}
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        one = by_name.get(name)
        if one is None:
            raise ConfigError(name, "unknown setting", suggestion(name, by_name))
        if one.name in given:
            raise ConfigError(name, f"the same setting as {given[one.name]}", "give one of the two")
        given[one.name] = name
        values[one.name] = convert(one, name, value)
    return kind(**values)


def checked_choice(name: str, value: C, allowed: Sequence[str]) -> C:
    """Return an argument that must be one of some words.

    Raises:
        ConfigError: it is another one.
    """
    if value not in allowed:
        raise ConfigError(name, f"{value!r} is not known", f"use one of {', '.join(allowed)}")
    return value


def checked_type(name: str, value: object, wanted: type | UnionType) -> None:
    """Check an argument that must be an object of a class.

    Args:
        name: Of the argument.
        value: What was given.
        wanted: The class, or a union as in the annotation of the argument.

    Raises:
        ConfigError: it is of another class, or is a class itself.
    """
    if isinstance(value, wanted) and not isinstance(value, type):
        return
    kinds = get_args(wanted) or (wanted,)
    shown = " | ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
    raise ConfigError(name, wrong_type(value), f"give a value of type {shown}")


def wrong_type(value: object) -> str:
    """Return the problem of a value that has the wrong type."""
    if isinstance(value, type):
        return f"{value.__name__} is a class"
    return f"{shortened(value)} is of type {type(value).__name__}"


def checked_values(
    name: str, values: str | Iterable[V] | None, wanted: type | UnionType
) -> tuple[V, ...] | None:
    """Return the values of an argument that takes several; a string alone is one of them. None stays None.

    Raises:
        ConfigError: one of them is not of type `wanted`, or the argument cannot be iterated.
    """
    if values is None:
        return None
    checked_type(name, values, Iterable)
    alone = isinstance(values, str) and wanted is str
    found = cast("tuple[V, ...]", (values,) if alone else tuple(values))
    for one in found:
        checked_type(name, one, wanted)
    return found


def checked_function(name: str, value: object) -> None:
    """Check an argument that must be callable; None is the default of each.

    Raises:
        ConfigError: it is not callable.
    """
    if value is not None and not callable(value):
        raise ConfigError(name, wrong_type(value), "give a function or a coroutine function")


def checked_whole(name: str, value: int | None) -> None:
    """Check an argument that must be a whole number; None is the default of each.

    Raises:
        ConfigError: it is not of type int; a bool is not, either.
    """
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise ConfigError(name, wrong_type(value), "give a whole number")


def checked_limit(name: str, value: int | None, least: int) -> None:
    """Check an argument that bounds a number; None is no bound.

    Raises:
        ConfigError: it is below the least value, or not a whole number of 64 bits.
    """
    checked_whole(name, value)
    if value is not None and value < least:
        raise ConfigError(name, f"{value} is below {least}", f"give {least} or more")
    if value is not None and value > INT64_MAX:
        raise ConfigError(name, f"{shortened(value)} is too large", f"give at most {INT64_MAX}")


def changed(
    kind: type[S],
    config: S | None,
    settings: Mapping[str, object],
    beside: Mapping[str, type[Settings]] | None = None,
) -> S:
    """Return settings with some values changed.

    Args:
        kind: The settings class.
        config: The settings to change; None: the defaults.
        settings: Values by our names.
        beside: Other settings classes that the caller accepts, by argument name.

    Raises:
        ConfigError: A name is unknown (the message suggests one), a value is invalid, or `config` has another
            type.
    """
    checked_type("config", config, kind | None)
    known = {one.name for one in settings_of(kind)}
    for name in settings.keys() - known:
        for argument, other in (beside or {}).items():
            if any(name in one.names for one in settings_of(other)):
                problem = f"is a setting of {other.__name__}"
                raise ConfigError(name, problem, f"put it into {argument}={other.__name__}(…)")
    found: S = dataclasses.replace(config or kind(), **dict[str, Any](settings))
    return found
