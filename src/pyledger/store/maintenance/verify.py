"""`verify`: everything in a store folder held against everything else, without changing a byte.

The log is the measure: each record against its own digests and place, each queue unit and each index entry
against its record, the checkpoint against the log. Findings come as they are found, file of the log by file
of the log.
"""

import os
from collections.abc import Callable, Iterator

from pyledger._core import LogView
from pyledger.clock import SystemClock
from pyledger.store.dledger.folder import committed_end, read_dledger_folder
from pyledger.store.files.finding import Finding
from pyledger.store.files.folder import ABORT_FILE, CHECKPOINT_FILE
from pyledger.store.files.staged_rows import find_staged
from pyledger.store.maintenance.verify_index import IndexCheck
from pyledger.store.maintenance.verify_log import check_log_end, check_log_file, check_run_of_files
from pyledger.store.maintenance.verify_queues import QueueCheck
from pyledger.store.reading.lost_end import find_lost_end
from pyledger.store.reading.reader import StoreReader


def verify(
    path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None
) -> Iterator[Finding]:
    """Check a store whole.

    Args:
        path: The store folder.
        progress: Called with the physical offset (bytes) up to which records were checked.

    Yields:
        Findings. One with `severity` "note" does not make a store unsound: recovery mends it, or it is only
        unusual.

    Raises:
        StoreNotFoundError: there is no store.
        StoreFormatError: its log is kept in another form.

    Cost: the log is read once and walked three times; memory for the units and keys of one log file.
    """
    advance = progress or _ignore
    with StoreReader.open(path, on_corrupt="skip") as reader:
        yield from _check_folder(reader)
        yield from check_run_of_files(reader.layout)
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
    """The part of the log that queues and index should have: of a DLedger log what is committed."""
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
    """Progress that nobody asked for."""


def _check_folder(reader: StoreReader) -> Iterator[Finding]:
    folder = reader.layout
    for stranger in folder.unusual:
        yield Finding("unusual", stranger.path, None, stranger.what, "note")
    for job in find_staged(folder.path, SystemClock().now_ms()):
        if job.state != "active":
            yield Finding("staged-rows", job.path, None, f"{job.detail} ({job.size_bytes:,} bytes)", "note")
    if not folder.clean:
        detail = "recovery runs at the next opening for writing"
        yield Finding("unclean", os.path.join(folder.path, ABORT_FILE), None, detail, "note")
    path = os.path.join(folder.path, CHECKPOINT_FILE)
    if not folder.has_checkpoint:
        if folder.log_files:
            yield Finding("checkpoint", path, None, "not there; recovery walks the whole log", "note")
        return
    if reader.checkpoint is None:
        yield Finding("checkpoint", path, 0, "too short, or names a time before 1970")
        return
    last_ms = reader.stop.last_store_timestamp
    if (
        folder.clean
        and reader.stop.last_record_offset >= 0
        and reader.checkpoint.physic_msg_timestamp > last_ms
    ):
        promised_ms = reader.checkpoint.physic_msg_timestamp
        detail = f"says that records up to {promised_ms} ms are on disk; the last one is of {last_ms} ms"
        yield Finding("checkpoint", path, 0, detail)
