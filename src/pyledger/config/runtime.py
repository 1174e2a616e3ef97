"""Settings of a running server, as text: shown to whoever asks, changed by an operator within limits."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pyledger.config.fields import Settings, convert, settings_of

S = TypeVar("S", bound=Settings)


def settings_text(parts: Iterable[Settings], others: Mapping[str, object], *, with_paths: bool) -> str:
    """Properties by upstream's names, sorted; a setting without such a name is left out.

    Args:
        parts: Whose settings; a client's side of the network is left out.
        others: Upstream's settings that none of the parts has.
        with_paths: Show where files lie, too.
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
    """One setting."""
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"


def changed_settings(part: S, wanted: Mapping[str, str], changeable: Collection[str]) -> S:
    """Settings after a change; what they do not know, or must not change, is left alone.

    Args:
        part: The settings before.
        wanted: Values by upstream's names.
        changeable: Our names of those that may change.

    Raises:
        ConfigError: a value is wrong.
    """
    by_name = {one.upstream: one for one in settings_of(type(part)) if one.name in changeable}
    values: dict[str, Any] = {
        by_name[name].name: convert(by_name[name], name, text)
        for name, text in wanted.items()
        if name in by_name
    }
    found: S = replace(part, **values)
    return found
