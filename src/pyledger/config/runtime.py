"""Settings of a running server as text, to show them and to change some of them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pyledger.config.fields import Settings, convert, settings_of

S = TypeVar("S", bound=Settings)


def settings_text(parts: Iterable[Settings], others: Mapping[str, object], *, with_paths: bool) -> str:
    """Return properties by upstream's names, sorted; settings without such a name are omitted.

    Args:
        parts: The settings; those of the client side of connections are omitted.
        others: Upstream's settings that are in none of the parts.
        with_paths: Include the paths of files.
    """
    lines = [line_of(name, value) for name, value in others.items()]
    for part in parts:
        for one in settings_of(type(part)):
            if one.upstream is None or one.name.startswith("client_"):
                continue
            if one.name.endswith("_path") and not with_paths:
                continue
            value = getattr(part, one.name)
            if one.choices is not None:
                value = one.choices[value]
            lines.append(line_of(one.upstream, value))
    return "".join(sorted(lines))


def line_of(name: str, value: object) -> str:
    """Return the line of one setting."""
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"


def changed_settings(part: S, wanted: Mapping[str, str], changeable: Collection[str]) -> S:
    """Return settings with changes; unknown settings, and those that must not change, are ignored.

    Args:
        part: The settings before.
        wanted: Values by upstream's names.
        changeable: Our names of the settings that may change.

    Raises:
        ConfigError: A value is invalid.
    """
    by_name = {one.upstream: one for one in settings_of(type(part)) if one.name in changeable}
    values: dict[str, Any] = {
        by_name[name].name: convert(by_name[name], name, text)
        for name, text in wanted.items()
        if name in by_name
    }
    found: S = replace(part, **values)
    return found
