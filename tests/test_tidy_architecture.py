"""The journeys of ARCHITECTURE.md: their files exist, lead on to one another, and do not become more.

And what differs between systems is in the two files that it names.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, check, files, name_of

CEILINGS = {
    "A put becomes a row of Spark": 28,
    "A SEND_MESSAGE frame becomes its response": 20,
    "A vote reaches the disk": 15,
    "A ledger add is confirmed": 18,
}
"""Most files of each journey."""
STEP = re.compile(r"^\d+\. `([\w/]+\.\w+)`: (.*)$", re.MULTILINE)
CALLED_BY_A_FRAMEWORK = "(Entry)"
"""Ends a step that the event loop, Spark, or a user calls."""


def journeys() -> dict[str, list[tuple[str, str]]]:
    """Path and text of the steps of each journey."""
    chapter = (ROOT / "ARCHITECTURE.md").read_text().partition("## Four journeys")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.*)$", chapter, flags=re.MULTILINE)
    return {title: STEP.findall(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def file_of(path: str) -> Path:
    if path.startswith("spark_ext/"):
        return ROOT / path
    return ROOT / "src" / path if path.startswith("_core/") else ROOT / "src" / "pyledger" / path


def reaches(earlier: str, path: str, step: str, source: str) -> bool:
    """Whether text of an earlier file imports the file, or uses a name of the step that the file defines."""
    module = path.removesuffix(".py").removeprefix("spark_ext/").replace("/", ".")
    if re.search(rf"(?:from|import) (?:pyledger\.)?{re.escape(module)}\b", earlier):
        return True
    names = {name.split(".")[-1] for name in re.findall(r"`(\w[\w.]*)`", step)}
    defined = {n for n in names if re.search(rf"(?:class|def) (?:\w+ )?{n}\b", source)}
    return any(re.search(rf"\b{name}\b", earlier) for name in defined)


def test_the_journeys_are_these() -> None:
    assert list(journeys()) == list(CEILINGS)


@pytest.mark.parametrize("title", CEILINGS)
def test_an_earlier_file_of_the_journey_reaches_each_file(title: str) -> None:
    def problems() -> Iterator[str]:
        earlier = ""
        for path, step in journeys()[title]:
            if not file_of(path).exists():
                yield f"{path}: no such file"
                continue
            source = file_of(path).read_text()
            if CALLED_BY_A_FRAMEWORK not in step and not reaches(earlier, path, step, source):
                yield f"{path}: no earlier file imports it, or uses a name of this step that it defines"
            earlier += source

    check(problems(), "ARCHITECTURE.md names the files on the way, in order")


@pytest.mark.parametrize("title", CEILINGS)
def test_a_journey_passes_few_files(title: str) -> None:
    paths = [path for path, _ in journeys()[title]]
    assert 5 < len(paths) == len(set(paths)) <= CEILINGS[title]


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    folders = (ROOT, ROOT / "src", ROOT / "src" / "pyledger", ROOT / "src" / "_core")
    named = re.findall(r"`([\w./]+/[\w.]+\.(?:pyx?|pxd|md|h|toml))`", text)
    missing = (path for path in named if not any((folder / path).exists() for folder in folders))
    check(missing, f"{name} names files that are there")


def test_two_files_have_what_differs_between_systems() -> None:
    homes = {"src/_core/base/platform.h", "src/pyledger/system_calls.py"}
    calls = r"\bos\.(?:fsync|fdatasync|eventfd\w*|posix_fallocate|SEEK_(?:DATA|HOLE))\b"
    differs = re.compile(rf"__(?:linux|APPLE)__|\b(?:linux|malloc|sys/(?:eventfd|syscall))[/.]|{calls}")
    problems = (
        f"{name_of(path)}: {found.group()}"
        for path in files(".py", ".pyx", ".pxd", ".h", under="src")
        if name_of(path) not in homes and (found := differs.search(path.read_text()))
    )
    check(problems, f"what differs between systems is in {homes}")
