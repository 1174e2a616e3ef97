"""`verify`: check the files of a store folder against each other, without changing a byte.

The log is the reference: each record is checked against its digests and offset, each queue unit and index
entry against its record, and the checkpoint against the log. The log is checked file by file, and
findings are yielded as they are found.
"""

import os
from collections.abc import Callable, Iterator

from pyledger._core import LogView
from pyledger.clock import SystemClock
from pyledger.store.dledger.folder import committed_end, read_dledger_folder
from pyledger.store.files.disk_error import disk_errors
from pyledger.store.files.finding import Finding
from pyledger.store.files.folder import ABORT_FILE, CHECKPOINT_FILE
from pyledger.store.files.staged_rows import find_staged
from pyledger.store.maintenance.verify_index import IndexCheck
from pyledger.store.maintenance.verify_log import check_file_sizes, check_log_end, check_log_file
from pyledger.store.maintenance.verify_queues import QueueCheck
from pyledger.store.reading.lost_end import find_lost_end
from pyledger.store.reading.reader import StoreReader


def verify(
    path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None
) -> Iterator[Finding]:
    """Check a whole store.

    Args:
        path: The store folder.
        progress: Called with the physical offset (bytes) up to which records were checked.

    Yields:
        Findings. A store whose findings all have `severity` "note" is consistent: recovery repairs them, or
        they are only unusual.

    Raises:
        StoreNotFoundError: the folder is not a store.
        StoreFormatError: the format of the log is not supported.
        StoreIOError: a file cannot be read.

    Cost: the log is read once and scanned three times; memory for the units and keys of one log file.
    """
    advance = progress or _ignore
    with disk_errors(path, "check"), StoreReader.open(path, on_corrupt="skip") as reader:
        yield from _check_folder(reader)
        yield from check_file_sizes(reader.layout)
        derived_from = _indexed_view(reader)
        queues = QueueCheck(reader.layout, derived_from)
        index = IndexCheck(reader.layout, derived_from, reader.checkpoint)
        try:
            yield from queues.check_files()
            yield from index.check_files()
            for file in reader.view.files:
                file_end = min(file.start_offset + file.size_bytes, reader.max_offset)
                if file.start_offset < file_end:
                    yield from check_log_file(reader.view, file, file_end, advance)
                    indexed_end = max(file.start_offset, min(file_end, derived_from.end_offset))
                    yield from queues.check_range(file.start_offset, indexed_end)
                    yield from index.check_range(file.start_offset, indexed_end)
            yield from check_log_end(list(reader.view.files), reader.stop)
            yield from _check_lost_end(reader)
            yield from queues.check_rest()
            yield from index.check_rest()
        finally:
            queues.close()


def _indexed_view(reader: StoreReader) -> LogView:
    """The part of the log that queues and index should cover: of a DLedger log, the committed entries."""
    folder = reader.layout
    if not (folder.entry_files and folder.clean):
        return reader.view
    home = os.path.dirname(os.path.dirname(folder.entry_files[0].path))
    end = committed_end(read_dledger_folder(home))
    return reader.view if end is None else LogView(reader.view.files, min(end, reader.max_offset))


def _check_lost_end(reader: StoreReader) -> Iterator[Finding]:
    lost = reader.lost_end or find_lost_end(reader.path)
    if lost is not None:
        yield Finding("lost-end", lost.path, lost.end_offset, lost.problem)


def _ignore(_done: int) -> None:
    """Discard progress."""


def _check_folder(reader: StoreReader) -> Iterator[Finding]:
    folder = reader.layout
    for found in folder.unusual:
        yield Finding("unusual", found.path, None, found.what, "note")
    for job in find_staged(folder.path, SystemClock().now_ms()):
        if job.state != "active":
            yield Finding("staged-rows", job.path, None, f"{job.detail} ({job.size_bytes:,} bytes)", "note")
    if not folder.clean:
        detail = "recovery runs at the next opening for writing"
        yield Finding("unclean", os.path.join(folder.path, ABORT_FILE), None, detail, "note")
    path = os.path.join(folder.path, CHECKPOINT_FILE)
    if not folder.has_checkpoint:
        if folder.log_files:
            yield Finding("checkpoint", path, None, "missing; recovery scans the whole log", "note")
        return
    if reader.checkpoint is None:
        yield Finding("checkpoint", path, 0, "too short, or has a time before 1970")
        return
    last_ms = reader.stop.last_store_timestamp
    if (
        folder.clean
        and reader.stop.last_record_offset >= 0
        and reader.checkpoint.physic_msg_timestamp > last_ms
    ):
        covered_ms = reader.checkpoint.physic_msg_timestamp
        detail = f"covers records up to {covered_ms} ms, but the last one was stored at {last_ms} ms"
        yield Finding("checkpoint", path, 0, detail)
