"""Stories of the broker's rules: `testdata/<machine>_<what happens>.txt`."""

from pathlib import Path
from typing import Protocol

import pytest

from tests.protocol.broker.narrators import NARRATORS
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


class Narrator(Protocol):
    def run_step(self, step: datadriven.Step) -> str: ...


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, rewrite: bool) -> None:
    machine = next(name for name in sorted(NARRATORS, key=len, reverse=True) if story.stem.startswith(name))
    narrator: Narrator = NARRATORS[machine]()
    datadriven.run(story, narrator.run_step, rewrite=rewrite)


def test_every_machine_has_a_story() -> None:
    stems = [path.stem for path in STORIES]
    assert [name for name in NARRATORS if not any(stem.startswith(name) for stem in stems)] == []
