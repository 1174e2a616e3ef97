"""Text tests: a file tells one story; the code under test must answer the same.

Grammar, a step after the other, with an empty line between::

    # Comments and empty lines may stand before a step.
    command word name=value name=(a,b)
    input lines, if any
    ----
    expected output, up to an empty line or the end

`pytest --rewrite` puts what the code says in the place of what was expected; comments and input stay.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"
ARGUMENT = re.compile(r"(?:([\w-]+)=)?(\([^)]*\)|\S+)")


@dataclass(frozen=True)
class Step:
    """One command with its arguments, and what it should say."""

    line: int
    command: str
    words: tuple[str, ...]
    named: dict[str, str]
    input: str
    expected: str

    def integer(self, name: str, default: int | None = None) -> int:
        """A named argument as a number."""
        if name not in self.named and default is not None:
            return default
        return int(self.named[name].replace("_", ""))

    def items(self, name: str) -> list[str]:
        """A named argument of the form `(a,b)`."""
        return [item for item in self.named[name].strip("()").split(",") if item]


@dataclass(frozen=True)
class Block:
    """The lines of a file before one expected output, and the step they hold."""

    head: list[str]
    step: Step


def parse(text: str) -> tuple[list[Block], list[str]]:
    """Split a file into its steps; what follows the last one comes second."""
    lines = text.splitlines()
    blocks: list[Block] = []
    at = 0
    while SEPARATOR in lines[at:]:
        split = lines.index(SEPARATOR, at)
        first = next(i for i in range(at, split) if lines[i] and not lines[i].startswith("#"))
        end = next((i for i in range(split + 1, len(lines)) if not lines[i]), len(lines))
        command, *arguments = (match.groups() for match in ARGUMENT.finditer(lines[first]))
        named = {name: value for name, value in arguments if name}
        words = tuple(value for name, value in arguments if not name)
        given, expected = "\n".join(lines[first + 1 : split]), "\n".join(lines[split + 1 : end])
        step = Step(first + 1, command[1], words, named, given, expected)
        blocks.append(Block(lines[at:split], step))
        at = end
    return blocks, lines[at:]


def run(path: Path, answer: Callable[[Step], str], *, rewrite: bool = False) -> None:
    """Play a file: `answer` answers each step.

    Args:
        path: The story.
        answer: Does what a step says and returns the output, without empty lines.
        rewrite: Write what `answer` says into the file instead of comparing.
    """
    blocks, tail = parse(path.read_text())
    assert blocks, f"{path}: no step"
    lines: list[str] = []
    for block in blocks:
        output = answer(block.step).strip("\n")
        assert "\n\n" not in output, f"{path}:{block.step.line}: an empty line would end the output"
        lines += [*block.head, SEPARATOR, *output.splitlines()]
        if not rewrite:
            place = f"{path.name}:{block.step.line}: {block.step.command}"
            assert output == block.step.expected, f"{place}\n{output}\n(--rewrite accepts this)"
    if rewrite:
        path.write_text("\n".join([*lines, *tail]).rstrip("\n") + "\n")
