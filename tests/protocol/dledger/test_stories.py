"""Stories about the machine of DLedger groups: `testdata/<machine>_<what happens>.txt`."""

from pathlib import Path

import pytest

from tests.protocol.dledger.narrator import NARRATORS
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, rewrite: bool) -> None:
    narrator = NARRATORS[story.stem.split("_")[0]]()
    datadriven.run(story, narrator.run_step, rewrite=rewrite)
