"""The native reader over every golden folder: each record that Java found, field by field, and no other."""

from pathlib import Path

import pyledger.store  # noqa: F401  hands the codecs to the native module
from pyledger._core import LogView, MappedFile, MessageScan, read_message, scan
from tests.golden.archive import GoldenCase
from tests.golden.lines import as_line


def open_view(store: Path) -> LogView:
    files = [MappedFile.open(str(path)) for path in sorted((store / "commitlog").iterdir())]
    return LogView(files, files[-1].start_offset + files[-1].mapped_bytes)


def test_every_golden_line_is_read_as_java_reads_it(golden: GoldenCase, pristine_store: Path) -> None:
    view = open_view(pristine_store)
    lines = sorted(golden.of_kind("message") + golden.of_kind("unindexed"), key=lambda x: x["physicalOffset"])
    if golden.loads:
        found = [message.physical_offset for message in MessageScan(view, view.start_offset)]
        assert found == [line["physicalOffset"] for line in lines]
    for line in lines:
        assert as_line(read_message(view, line["physicalOffset"])) == line


def test_scan_ends_where_java_recovers_to(golden: GoldenCase, pristine_store: Path) -> None:
    view = open_view(pristine_store)
    stop = scan(view, view.start_offset)
    if golden.loads:
        assert stop.next_offset == golden.summary["maxPhysicalOffset"]
        assert stop.blank_count == golden.summary["blanks"]
        assert stop.record_count == golden.summary["messages"] + golden.summary["unindexed"]
    else:
        assert (stop.status, stop.record_count > 0) == ("short", True)
