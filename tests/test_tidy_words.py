"""The rules for words: those that the glossary replaced become fewer."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import check, tracked
from tools import count_retired_words


def test_retired_words_do_not_come_back() -> None:
    found = count_retired_words.count(tracked())

    def problems() -> Iterator[str]:
        for word, row in count_retired_words.ceilings().items():
            for column in ("code", "docs"):
                uses = found[word][column]
                if uses > int(row[column]):
                    yield f"{word}: {uses} in {column}, at most {row[column]}; use: {row['use']}"

    check(problems(), "a retired word is not used again (tests/retired_words.toml, docs/glossary.md)")


def test_innocent_uses_exist() -> None:
    table = tomllib.loads(count_retired_words.TABLE.read_text())

    def problems() -> Iterator[str]:
        for name, phrases in table["innocent"].items():
            text = (count_retired_words.ROOT / name).read_text()
            yield from (f"{name}: {phrase!r} does not occur" for phrase in phrases if phrase not in text)

    check(problems(), "a use that is listed as innocent exists (tests/retired_words.toml)")


def test_every_retired_word_has_a_row_of_its_own() -> None:
    rows = re.findall(r"^'(.*)' = \{", count_retired_words.TABLE.read_text(), re.MULTILINE)
    assert rows == list(count_retired_words.ceilings())


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "src/a.py",
            'x = Gadget(old_gizmo, aGizmo)  # beneath `Gadget`\n"""It dwells."""\n',
            {"Gadget": 2, "beneath": 1, "dwells": 1, "gizmo": 2},
        ),
        (
            "src/a.pyx",
            'cdef Gadget x  # beneath\ny = "it dwells", GIZMO_MAX, gizmos\n',
            {"Gadget": 1, "beneath": 1, "dwells": 1, "gizmo": 1},
        ),
        (
            "src/a.h",
            "Gadget x; /* beneath\n dwells */ // beneath\n",
            {"Gadget": 1, "beneath": 2, "dwells": 1, "gizmo": 0},
        ),
        (
            "tests/a.py",
            "x = Gadget(old_gizmo)  # It is beneath\n",
            {"Gadget": 1, "beneath": 0, "dwells": 0, "gizmo": 0},
        ),
        (
            "a.md",
            "Beneath\n`Gadget`\n```\nit dwells\n```\n",
            {"Gadget": 1, "beneath": 1, "dwells": 0, "gizmo": 0},
        ),
    ],
)
def test_names_are_counted_in_code_and_words_in_prose(
    name: str, text: str, expected: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "retired.toml"
    table.write_text(
        "[names]\n'Gadget' = {}\n[parts]\n'gizmo' = {}\n[words]\n'beneath' = {}\n'dwells' = {}\n"
    )
    monkeypatch.setattr(count_retired_words, "TABLE", table)
    monkeypatch.setattr(count_retired_words, "ROOT", tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert set(tomllib.loads(table.read_text())["words"]) < set(expected)
    column = "docs" if path.suffix == ".md" else "code"
    assert {word: counts[column] for word, counts in count_retired_words.count([path]).items()} == expected
