r"""Java's `.properties`, the form of upstream's configuration files: `broker.conf`, `namesrv.conf`.

A line is `key = value`, `key: value` or `key value`; `#` and `!` begin a comment line. A backslash at the
end continues the line, elsewhere it escapes. The last of several equal keys wins.

Source: java.util.Properties (load).
"""

import re

from pyledger.errors import ConfigError

PAIR = re.compile(r"((?:[^\\\s=:]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Parse properties into values by key.

    Raises:
        ConfigError: An escape is invalid.
    """
    found = {}
    for line in logical_lines(text):
        pair = PAIR.match(line)
        assert pair is not None, "the pattern matches every text"
        found[unescape(pair[1])] = unescape(pair[2])
    return found


def logical_lines(text: str) -> list[str]:
    """Return lines without comments and blank lines; continued lines are joined."""
    lines: list[str] = []
    open_end = False
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if open_end:
            lines[-1] += stripped
        elif stripped and stripped[0] not in "#!":
            lines.append(stripped)
        else:
            continue
        last = lines[-1]
        open_end = (len(last) - len(last.rstrip("\\"))) % 2 == 1
        if open_end:
            lines[-1] = last[:-1]
    return lines


def unescape(text: str) -> str:
    """Replace the escapes of a key or value."""

    def plain(match: re.Match[str]) -> str:
        kind = match[1]
        if kind == "u":
            raise ConfigError(text, "a broken escape", r"write \uXXXX, or \\ for a backslash")
        return chr(int(kind[1:], 16)) if len(kind) == 5 else CONTROLS.get(kind, kind)

    return ESCAPE.sub(plain, text)
