"""The JSON of Java's fastjson, which the config files of a store are written in.

It differs from JSON: integer keys have no quotes, and a map with integer keys is on one line. Its
reader also takes single quotes, names without quotes, trailing commas and comments, `{"$ref": "$.path"}` for
an object that occurs a second time, and an object as a key. `parse` reads what fastjson reads, `dump` writes
what it writes.

Reading costs no more than a constant times the text, references included: an object that occurs again is the
same object, and a document whose references expand to much more than its own size is rejected, because its
readers walk them as often as they occur.

Source: RocketMQ common/.../ConfigManager.java; fastjson JSONLexer, MapSerializer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyledger.errors import MalformedJsonError
from pyledger.wire.remoting.native_codec import parse_lenient_json

REFERRED_MIN = 10_000
REFERRED_FACTOR = 4
"""A document with references may come to this many times its size in values and characters, once every
reference is written out, or to the minimum."""
PATH_DIGITS_MAX = 9
ANY_NUMBER = 1 << 62
UNUSUAL = re.compile("[\x0b\x0e-\x1f\x7f-\x9f\u2028\u2029]")
quote = json.JSONEncoder(ensure_ascii=False).encode
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes a value as ordinary JSON without a space."""
STEP = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)|\[(\d+)\]")

Reference = tuple[Any, Any, str | int]
"""Parent, container and key of a `{"$ref": text}`."""


def parse(text: str, *, containers_max: int = ANY_NUMBER) -> Any:
    """Parse one document.

    Keys are `str`, except integers without quotes, which are `int`. A key that is an object becomes its text,
    as a writer of plain JSON has it. An object that a reference names is shared, not copied.

    Args:
        text: The document.
        containers_max: How many objects and lists it may have; they cost most.

    Raises:
        MalformedJsonError: with line and column.
    """
    value, references = parse_lenient_json(text, compact, True, containers_max)
    if references:
        resolve(text, value, references)
    return value


def parse_without_references(text: str) -> Any:
    """Parse one document as `parse` does, but keep `{"$ref": "$.path"}` as an object.

    Raises:
        MalformedJsonError: with line and column.
    """
    return parse_lenient_json(text, compact, False, ANY_NUMBER)[0]


def resolve(text: str, root: Any, references: Sequence[Reference]) -> None:
    """Replace references by the objects that they name.

    Raises:
        MalformedJsonError: a reference has no target or contains itself, or all of them expand to too much.
    """
    for parent, container, key in references:
        path = container[key]["$ref"]
        near = {"@": container, "..": parent}
        container[key] = near[path] if path in near else follow(text, root, path)
    left = REFERRED_FACTOR * len(text) + REFERRED_MIN
    seen = [root]
    while seen:
        value = seen.pop()
        left -= 1
        if isinstance(value, dict):
            left -= sum(map(len, map(str, value)))
            seen += value.values()
        elif isinstance(value, list):
            seen += value
        elif isinstance(value, str):
            left -= len(value)
        if left < len(seen):
            raise wrong(text, "references expand to too much, or to an object that contains them")


def follow(text: str, root: Any, path: str) -> Any:
    """The object that a path such as `$.table.name` names."""
    here = root
    steps = path.removeprefix("$")
    matched = list(STEP.finditer(steps))
    if not path.startswith("$") or "".join(m[0] for m in matched) != steps:
        raise wrong(text, f"cannot follow the reference {path[:100]}")
    for step in matched:
        key: str | int = re.sub(r"\\(.)", r"\1", step[1]) if step[1] else int(step[2][:PATH_DIGITS_MAX])
        try:
            here = here[key]
        except (KeyError, IndexError, TypeError):
            raise wrong(text, f"the reference {path[:100]} leads nowhere") from None
    return here


def wrong(text: str, problem: str) -> MalformedJsonError:
    """Return the error for a document that is wrong as a whole, at its end."""
    return MalformedJsonError(text.count("\n") + 1, len(text) - text.rfind("\n"), problem)


def quoted(text: str) -> str:
    """Write a text as fastjson does: what shows no glyph becomes an escape with capital digits."""
    if UNUSUAL.search(text) is None:
        return quote(text)
    pieces = UNUSUAL.split(text)
    escapes = [f"\\u{ord(one):04X}" for one in UNUSUAL.findall(text)]
    inner = [quote(piece)[1:-1] for piece in pieces]
    return '"' + "".join(a + b for a, b in zip(inner, [*escapes, ""], strict=True)) + '"'


def quoted_map(texts: Mapping[str, str]) -> str:
    """Write texts by name as fastjson does, in the order of the mapping."""
    if UNUSUAL.search("".join((*texts, *texts.values()))) is None:
        return compact(texts)
    entries = [f"{quoted(key)}:{quoted(value)}" for key, value in texts.items()]
    return f"{{{','.join(entries)}}}"


def folded(name: object) -> str:
    """A name as fastjson compares it: neither case nor `_` nor `-` matter."""
    return str(name).replace("_", "").replace("-", "").lower()


def dump(value: object) -> str:
    """Write a document in fastjson's pretty form, in the order of the mappings; None fields are left out."""
    return "".join(written(value, 0))


def written(value: object, depth: int) -> list[str]:
    """The pieces of one value."""
    if isinstance(value, Mapping):
        return written_object(value, depth)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ["[", ",".join("".join(written(one, depth + 1)) for one in value), "]"]
    return [json.dumps(value, ensure_ascii=False)]


def written_object(value: Mapping[Any, Any], depth: int) -> list[str]:
    """The pieces of one object: a field to a line, but integer keys all on one line, as fastjson has them."""
    kept = {key: one for key, one in value.items() if one is not None}
    if not kept:
        return ["{}"]
    margin = "\n" + "\t" * depth
    pieces = ["{"]
    for number, (key, one) in enumerate(kept.items()):
        pieces.append("," if number else "")
        pieces.append(
            f"{key}:" if isinstance(key, int) else f"{margin}\t{json.dumps(key, ensure_ascii=False)}:"
        )
        pieces += written(one, depth + 1)
    return [*pieces, margin, "}"]
