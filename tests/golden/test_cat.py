"""`pyledger cat` prints what Java's own store finds in the same folder, and changes nothing in it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden.archive import GoldenCase, golden_case

COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "layout", "tagsCode", "tags",
    "keys", "properties", "bodyLength", "bodyCRC", "bodySha256", "plainSha256", "bornTimestamp",
    "storeTimestamp", "bornHost", "storeHost", "sysFlag", "flag", "reconsumeTimes",
    "preparedTransactionOffset",
)  # fmt: skip

Line = dict[str, Any]


def cat(store: Path, *options: str) -> tuple[int, list[Line], str]:
    command = [
        sys.executable,
        "-m",
        "pyledger.cli",
        "cat",
        str(store),
        "--json",
        "--body",
        "sha256",
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    return (done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)


def columns(line: Line) -> Line:
    """The columns that a golden line has; an unpacked body's digest counts only where the body is packed."""
    found = {name: line.get(name) for name in COLUMNS}
    if found["plainSha256"] == found["bodySha256"]:
        found["plainSha256"] = None
    return found


def expected_end(golden: GoldenCase) -> tuple[int, str]:
    """Exit code and message for a log: one that was closed properly and ends at damage is an error."""
    if not golden.name.startswith("torn-clean"):
        return 0, ""
    end = golden.summary["maxPhysicalOffset"]
    return 1, f"the log ends at physical offset {end}: its lengths do not add up; see `pyledger verify`"


def test_queue_order_is_what_consumers_reach(golden: GoldenCase, pristine_store: Path) -> None:
    code, lines, errors = cat(pristine_store, "--order", "queue")
    if golden.loads:
        message = json.loads(errors)["message"] if errors else ""
        assert (code, message) == expected_end(golden)
        assert [columns(line) for line in lines] == [columns(line) for line in golden.of_kind("message")]
    else:
        # Java refuses the folder; all but the record that was cut must be there.
        assert len(lines) == golden.facts["written"] - 1


@pytest.mark.parametrize("name", ["clean-5", "no-queues-4", "torn-zero-5", "deleted-head-5", "long-topic-5"])
def test_log_order_has_every_record(name: str, tmp_path: Path) -> None:
    golden = golden_case(name)
    code, lines, errors = cat(golden.unpack(tmp_path))
    wanted = sorted(
        golden.of_kind("message") + golden.of_kind("unindexed"), key=lambda x: x["physicalOffset"]
    )
    assert (code, errors) == (0, "")
    assert [line["physicalOffset"] for line in lines] == [line["physicalOffset"] for line in wanted]
    unnamed = {line["physicalOffset"] for line in golden.of_kind("unindexed")}
    for line, want in zip(lines, wanted, strict=True):
        if want["physicalOffset"] in unnamed:
            # No queue unit, so upstream has no tags code for it.
            line["tagsCode"] = None
        assert columns(line) == columns(want)
