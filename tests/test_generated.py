"""Files that tools make are what the tools make now, and say so."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.source_tree import ROOT, check, files, name_of, tree
from tools import generate_blocking, generate_settings

FREE_KEYWORDS = {
    "src/pyledger/log_events.py": "fields of a log line",
    "src/pyledger/net/event_limiter.py": "fields of a log line",
    "src/pyledger/config/fields.py": "fields of any settings class",
    "src/pyledger/net/stream.py": "fields of a log line",
    "src/pyledger/model/lazy_dataclass.py": "fields of any dataclass",
}
"""Signatures that take keywords of any type, and why no type checker could know them."""


def test_keywords_of_settings_are_up_to_date() -> None:
    assert generate_settings.FILE.read_text() == generate_settings.source(), "run tools/generate_settings.py"


@pytest.mark.parametrize("name", generate_blocking.MODULES)
def test_synchronous_classes_are_up_to_date(name: str) -> None:
    made = generate_blocking.source(name)
    assert (generate_blocking.FOLDER / f"{name}.py").read_text() == made, "run tools/generate_blocking.py"


def test_only_the_base_of_synchronous_classes_is_written_by_hand() -> None:
    there = {path.stem for path in generate_blocking.FOLDER.glob("*.py")}
    assert there == {"__init__", "base", *generate_blocking.MODULES}
    assert len((generate_blocking.FOLDER / "base.py").read_text().splitlines()) <= 150


def test_keywords_have_types() -> None:
    def problems() -> Iterator[str]:
        seen = set()
        for path in (*files(".py", under="src/pyledger"), *files(".py", under="spark_ext")):
            # Click hands a command its options by name.
            if path.is_relative_to(ROOT / "src/pyledger/cli"):
                continue
            for node in ast.walk(tree(path)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.args.kwarg is None:
                    continue
                annotation = node.args.kwarg.annotation
                if annotation is not None and ast.unparse(annotation) not in ("object", "Any"):
                    continue
                seen.add(name_of(path))
                if name_of(path) not in FREE_KEYWORDS:
                    yield f"{name_of(path)}:{node.lineno}: {node.name}(**{node.args.kwarg.arg})"
        yield from (f"{name}: none is left" for name in FREE_KEYWORDS.keys() - seen)

    check(problems(), "keywords are `Unpack` of a TypedDict, so that type checkers see misspelt ones")
