"""The JSON of Java's fastjson, which the config files of a store are written in.

It differs from JSON so: integer keys stand without quotes, and a map that has them stands on one line. Its
reader also takes single quotes, names without quotes, trailing commas and comments, `{"$ref": "$.path"}` for
an object that occurs a second time, and an object as a key. `parse` reads what fastjson reads, `dump` writes
what it writes.

Source: RocketMQ common/.../ConfigManager.java; fastjson JSONLexer, MapSerializer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyledger.errors import MalformedJsonError

DEPTH_MAX = 100
DIGITS_MAX = 400
SPACE = re.compile(r"(?:[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
KEY_NUMBER = re.compile(r"-?\d{1,20}")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
INTEGER = re.compile(r"[-+]?\d+\Z")
WORD = re.compile(r"[A-Za-z_$][\w$]*")
PLAIN = re.compile(r"[^\"'\\]+")
ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
CONSTANTS = {"true": True, "false": False, "null": None}
UNUSUAL = re.compile("[\x0b\x0e-\x1f\x7f-\x9f\u2028\u2029]")
quote = json.JSONEncoder(ensure_ascii=False).encode
quote_all = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
STEP = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)|\[(\d+)\]")


def parse(text: str) -> Any:
    """Parse one document.

    Keys are `str`, except integers without quotes, which are `int`. A key that is an object becomes its text,
    as a writer of plain JSON has it.

    Raises:
        MalformedJsonError: names the place.
    """
    return Parser(text).document()


def parse_quickly(text: str) -> Any:
    """Parse what is most likely ordinary JSON; otherwise as `parse`, after some time lost.

    Raises:
        MalformedJsonError: names the place.
    """
    try:
        if '"$ref"' not in text:
            return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        raise MalformedJsonError(1, 1, "nested too deeply") from None
    return parse(text)


class Parser:
    """One pass over one document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.in_key = False
        self.containers: list[Any] = []
        self.references: list[tuple[Any, Any, str | int]] = []

    def document(self) -> Any:
        """The one value that the text holds, references resolved."""
        value = self.value(0)
        if self.peek():
            raise self.wrong("text goes on after the end")
        for parent, container, key in self.references:
            path = container[key]["$ref"]
            near = {"@": container, "..": parent}
            container[key] = near[path] if path in near else self.follow(value, path)
        return value

    def wrong(self, problem: str) -> MalformedJsonError:
        """The error for the place that was reached."""
        line = self.text.count("\n", 0, self.at) + 1
        return MalformedJsonError(line, self.at - self.text.rfind("\n", 0, self.at), problem)

    def peek(self) -> str:
        """The next character that is not space; empty at the end."""
        space = SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        """Any value."""
        start = self.peek()
        if depth > DEPTH_MAX:
            raise self.wrong("nested too deeply")
        if start == "{":
            return self.object(depth)
        if start == "[":
            return self.array(depth)
        if start in {'"', "'"}:
            return self.string(start)
        if number := NUMBER.match(self.text, self.at):
            if len(number[0]) > DIGITS_MAX:
                raise self.wrong("a number is too long")
            self.at = number.end()
            return int(number[0]) if INTEGER.match(number[0]) else float(number[0])
        word = WORD.match(self.text, self.at)
        if word is None or word[0] not in CONSTANTS:
            raise self.wrong("a value is expected")
        self.at = word.end()
        return CONSTANTS[word[0]]

    def object(self, depth: int) -> dict[str | int, Any]:
        """From `{` to `}`."""
        found: dict[str | int, Any] = {}
        self.containers.append(found)
        self.at += 1
        while (start := self.peek()) != "}":
            if start == ",":
                self.at += 1
                continue
            key = self.key(start, depth)
            if self.peek() != ":":
                raise self.wrong("':' is expected")
            self.at += 1
            found[key] = self.value(depth + 1)
            self.note_reference(found, key)
            if self.peek() not in {",", "}"}:
                raise self.wrong("',' or '}' is expected")
        self.containers.pop()
        self.at += 1
        return found

    def key(self, start: str, depth: int) -> str | int:
        """A key, in quotes or without, or the text of an object, which then has no such keys itself."""
        if start in {'"', "'"}:
            return self.string(start)
        if start == "{" and not self.in_key:
            self.in_key = True
            text = compact(self.value(depth + 1))
            self.in_key = False
            return text
        if number := KEY_NUMBER.match(self.text, self.at):
            self.at = number.end()
            return int(number[0])
        if word := WORD.match(self.text, self.at):
            self.at = word.end()
            return word[0]
        raise self.wrong("a key is expected")

    def array(self, depth: int) -> list[Any]:
        """From `[` to `]`."""
        found: list[Any] = []
        self.containers.append(found)
        self.at += 1
        while (start := self.peek()) != "]":
            if start == ",":
                self.at += 1
                continue
            found.append(self.value(depth + 1))
            self.note_reference(found, len(found) - 1)
            if self.peek() not in {",", "]"}:
                raise self.wrong("',' or ']' is expected")
        self.containers.pop()
        self.at += 1
        return found

    def string(self, quote: str) -> str:
        """From quote to quote."""
        parts = []
        self.at += 1
        while (here := self.text[self.at : self.at + 1]) != quote:
            if not here:
                raise self.wrong("a string does not end")
            if here == "\\":
                parts.append(self.escape())
            elif plain := PLAIN.match(self.text, self.at):
                parts.append(plain[0])
                self.at = plain.end()
            else:
                parts.append(here)
                self.at += 1
        self.at += 1
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def escape(self) -> str:
        r"""One escape; Java writes characters outside the first plane as two `\u`."""
        kind = self.text[self.at + 1 : self.at + 2]
        length = {"u": 4, "x": 2}.get(kind, 0)
        digits = self.text[self.at + 2 : self.at + 2 + length]
        if not kind or (length and not re.fullmatch(rf"[0-9a-fA-F]{{{length}}}", digits)):
            raise self.wrong("a broken escape")
        self.at += 2 + length
        return chr(int(digits, 16)) if length else ESCAPES.get(kind, kind)

    def note_reference(self, container: Any, key: str | int) -> None:
        """Remember a `{"$ref": …}` until the whole document is known."""
        value = container[key]
        if isinstance(value, dict) and list(value) == ["$ref"] and isinstance(value["$ref"], str):
            parent = self.containers[-2] if len(self.containers) > 1 else container
            self.references.append((parent, container, key))

    def follow(self, root: Any, path: str) -> Any:
        """The object that a path such as `$.table.name` names."""
        here = root
        steps = path.removeprefix("$")
        matched = list(STEP.finditer(steps))
        if not path.startswith("$") or "".join(m[0] for m in matched) != steps:
            raise self.wrong(f"cannot follow the reference {path}")
        for step in matched:
            key: str | int = int(step[2]) if step[2] else re.sub(r"\\(.)", r"\1", step[1])
            try:
                here = here[key]
            except (KeyError, IndexError, TypeError):
                raise self.wrong(f"the reference {path} leads nowhere") from None
        return here


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
        return quote_all(texts)
    entries = [f"{quoted(key)}:{quoted(value)}" for key, value in texts.items()]
    return f"{{{','.join(entries)}}}"


def folded(name: object) -> str:
    """A name as fastjson compares it: neither case nor `_` nor `-` matter."""
    return str(name).replace("_", "").replace("-", "").lower()


def compact(value: object) -> str:
    """Write a value as ordinary JSON without a space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
