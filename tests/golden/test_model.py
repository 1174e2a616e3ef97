"""The models agree with upstream's own store on every golden folder, so they may stand for it."""

from typing import Any

import pytest

from tests.golden.archive import GoldenCase
from tests.models.recovery import Recovered, message_line, recover


@pytest.fixture(scope="module")
def recovered(golden: GoldenCase, tmp_path_factory: pytest.TempPathFactory) -> Recovered:
    if not golden.loads:
        pytest.skip("upstream refuses the folder")
    return recover(golden.unpack(tmp_path_factory.mktemp("golden")))


def test_every_message_stands_where_upstream_finds_it(golden: GoldenCase, recovered: Recovered) -> None:
    found: list[dict[str, Any]] = []
    for _, units in sorted(recovered.queues.items()):
        found += [message_line(units[offset]) for offset in sorted(units)]
    assert found == golden.of_kind("message")


def test_records_outside_the_queues(golden: GoldenCase, recovered: Recovered) -> None:
    found = [message_line(record, "unindexed") for record in recovered.unindexed]
    assert found == golden.of_kind("unindexed")


def test_summary(golden: GoldenCase, recovered: Recovered) -> None:
    summary = golden.summary
    queues = {f"{topic}/{queue_id}": [*ends] for (topic, queue_id), ends in recovered.ranges().items()}
    assert queues == {name: ends for name, ends in summary["queues"].items() if ends != [0, 0]}
    assert recovered.log.start == summary["minPhysicalOffset"]
    assert recovered.log.end == summary["maxPhysicalOffset"]
    assert recovered.log.blanks == summary["blanks"]


def test_answers_of_the_index(golden: GoldenCase, recovered: Recovered) -> None:
    # After an unclean exit upstream indexes the last record of a surviving index file a second time.
    once = set if golden.summary["abortFile"] else list
    for line in golden.of_kind("key"):
        assert once(recovered.query(line["topic"], line["key"])) == once(line["physicalOffsets"]), line


def test_answers_by_time(golden: GoldenCase, recovered: Recovered) -> None:
    if golden.version < "5":
        pytest.skip("4.9 answers with the nearest unit, and picks the file by its modification time")
    for line in golden.of_kind("time"):
        queue = (line["topic"], line["queueId"])
        assert recovered.offset_by_time(queue, line["timestamp"], upper=False) == line["lower"], line
        # Upstream's upper search over batch queues has no rule: between two units it gives either one, or 0.
        if not recovered.is_batch_queue(queue):
            assert recovered.offset_by_time(queue, line["timestamp"], upper=True) == line["upper"], line
