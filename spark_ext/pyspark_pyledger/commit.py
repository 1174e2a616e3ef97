"""Append staged rows to the store exactly once, with a journal of the commit that is in progress.

The journal is written before the first append. It names the staged files and the end of every queue. The next
writer that finds an unfinished journal appends the missing rows: rows have one order, so those already stored
are the first of each queue. A stream's journal keeps the id of the last batch, so a repeat is skipped.
"""

import json
import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyledger.atomic_file import replace_file
from pyledger.store.files.folder import STAGING_FOLDER
from pyledger.store.files.staged_rows import remove_abandoned, sweep
from pyledger.store.messages.store_engine import StoreEngine, choose_queues
from pyledger.store.queues.get_result import GetStatus
from pyspark_pyledger.staging import StagedFile, read_staged, staging_folder
from pyspark_pyledger.write_options import WriteOptions

log = logging.getLogger("pyledger.spark")

Queue = tuple[str, int]
Row = tuple[bytes, dict[str, str], int]
"""Body, properties, born timestamp (ms)."""
_READ_COUNT = 256
FIRST_CHUNK_BYTES = 1 << 20
"""Disk space to allocate for a new log file before its first record."""


@dataclass(frozen=True, slots=True)
class Journal:
    """One commit: what to append, and where every queue ended before."""

    job: str
    batch_id: int | None
    """The batch of a stream; None in a batch write."""
    done: bool
    files: tuple[str, ...] = ()
    topic: str | None = None
    queue_counts: dict[str, int] | None = None
    """Number of queues over which rows without a queue id are spread, by topic."""
    ends: dict[str, dict[str, int]] | None = None
    """End offset of each queue before the commit, by topic and queue id."""
    born_ms: int = 0
    """Born timestamp of rows without one."""


def publish(options: WriteOptions, job: str, batch_id: int | None, staged: Iterable[StagedFile]) -> int:
    """Append staged rows, finish interrupted commits, and delete abandoned staged files.

    Args:
        options: The options of the write.
        job: Name of the staging folder and of the journal.
        batch_id: The batch of a stream. If it is already committed, its staged files are only deleted.
        staged: The files of all tasks, in task order.

    Returns:
        Messages appended for this job.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreFullError: no space left; the next commit continues where this one stopped.

    Durability: on return, messages and journal survive a power failure.
    """
    files = [file for file in staged if file.row_count]
    home = Path(options.path) / STAGING_FOLDER
    home.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, Any] = {"first_chunk_bytes": FIRST_CHUNK_BYTES}
    if options.log_file_size_bytes is not None:
        sizes["mapped_file_size_bytes"] = options.log_file_size_bytes
    # Staged files are deleted two at a time while the store closes: the kernel frees their pages one by one.
    with ThreadPoolExecutor(2) as aside, StoreEngine.open(options.path, **sizes) as store:
        finished = {journal.job: journal for journal in finish_others(store)}
        before = finished.get(job) or _read(home / f"{job}.json")
        count = 0
        if before is None or batch_id is None or before.batch_id is None or batch_id > before.batch_id:
            journal = _begin(store, options, job, batch_id, files)
            if files:
                _write(home, journal)
                count = _append(store, journal)
                store.flush()
            _end(home, journal)
        for left in remove_abandoned(options.path, time.time_ns() // 1_000_000):
            log.warning("removed %s, %d bytes: %s", left.path, left.size_bytes, left.detail)
        for file in files:
            aside.submit((home / job / file.name).unlink)
    sweep(home / job)
    return count


def finish_others(store: StoreEngine) -> list[Journal]:
    """Finish the interrupted commits of all jobs of a store, and return them."""
    home = Path(store.path) / STAGING_FOLDER
    finished = []
    for file in sorted(home.glob("*.json")):
        journal = _read(file)
        if journal is not None and not journal.done:
            _append(store, journal, resumed=True)
            store.flush()
            _end(home, journal)
            sweep(home / journal.job)
            finished.append(journal)
    return finished


def _begin(
    store: StoreEngine, options: WriteOptions, job: str, batch_id: int | None, files: list[StagedFile]
) -> Journal:
    held = store.queues()
    topics = sorted({topic for file in files for topic in file.topics})
    ends: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for (topic, queue_id), span in held.items():
        if topic in ends:
            ends[topic][str(queue_id)] = span.max_offset
    return Journal(
        job=job,
        batch_id=batch_id,
        done=False,
        files=tuple(file.name for file in files),
        topic=options.topic,
        queue_counts=dict.fromkeys(topics, options.queue_count),
        ends=ends,
        born_ms=time.time_ns() // 1_000_000,
    )


def _append(store: StoreEngine, journal: Journal, *, resumed: bool = False) -> int:
    """Append the rows of a journal; if it is resumed, without those already stored."""
    there: dict[Queue, Iterator[Row]] = {}
    count = 0
    for topic, all_rows, chosen in _with_queues(store, journal):
        rows, queue_ids = all_rows, chosen
        if resumed:
            missing = _missing(store, journal, topic, all_rows, chosen, there)
            rows, queue_ids = all_rows.filter(missing), chosen.filter(missing)
        if not rows.num_rows:
            continue
        store.append_rows(
            topic, _values(queue_ids), _texts(rows.column("body")), _texts(rows.column("properties")),
            _values(_born(rows, journal)),
        )  # fmt: skip
        count += rows.num_rows
    return count


def _with_queues(store: StoreEngine, journal: Journal) -> Iterator[tuple[str, Any, Any]]:
    """Yield topic, rows and their queue ids: the column's value, by the hash of the keys, or round-robin."""
    counts, next_ids = journal.queue_counts or {}, dict.fromkeys(journal.queue_counts or {}, 0)
    for batch in read_staged(staging_folder(store.path, journal.job), journal.files):
        for topic in [journal.topic] if journal.topic else pc.unique(batch.column("topic")).to_pylist():
            rows = batch if journal.topic else batch.filter(pc.equal(batch.column("topic"), topic))
            given, keys = _values(rows.column("queueId")), _texts(rows.column("keys"))
            chosen, next_ids[topic] = choose_queues(given, *keys, counts[topic], next_ids[topic])
            yield topic, rows, pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(chosen)])


def _missing(
    store: StoreEngine, journal: Journal, topic: str, rows: Any, queue_ids: Any,
    there: dict[Queue, Iterator[Row]],
) -> Any:  # fmt: skip
    """Return a mask of the rows that are not in the store yet. Those stored are the first of their queues."""
    ends = (journal.ends or {}).get(topic, {})
    found = []
    for queue_id, row in zip(queue_ids.to_pylist(), _rows(rows, journal), strict=True):
        queue = topic, queue_id
        if queue not in there:
            there[queue] = _stored(store, queue, ends.get(str(queue_id), 0))
        is_there = next(there[queue], None) == row
        if not is_there:
            there[queue] = iter(())
        found.append(not is_there)
    return pa.array(found, pa.bool_())


def _rows(batch: Any, journal: Journal) -> Iterator[Row]:
    """Yield the rows of a batch for comparison with stored messages."""
    columns = (batch.column("body"), batch.column("properties"), _born(batch, journal))
    for body, stored, born_ms in zip(*(column.to_pylist() for column in columns), strict=True):
        pairs = (pair.split("\x01", 1) for pair in stored.decode().split("\x02") if pair)
        yield body, dict(pairs), born_ms


def _born(rows: Any, journal: Journal) -> Any:
    """Born timestamps (ms)."""
    born = rows.column("bornTimestamp")
    return pc.if_else(pc.equal(born, 0), journal.born_ms, born)


def _values(column: Any) -> memoryview:
    """The numbers of a column."""
    numbers = memoryview(column.buffers()[1])
    cast = numbers.cast("i") if column.type == pa.int32() else numbers.cast("q")
    return cast[column.offset : column.offset + len(column)]


def _texts(column: Any) -> tuple[memoryview, memoryview]:
    """Offsets and bytes of a column."""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
    return ends, memoryview(b"" if data is None else data).cast("B")


def _stored(store: StoreEngine, queue: Queue, offset: int) -> Iterator[Row]:
    """Yield the messages of a queue from an offset on, as rows."""
    while True:
        found = store.get(*queue, offset, max_count=_READ_COUNT)
        if found.status is not GetStatus.FOUND:
            return
        for message in found.messages:
            yield message.body, dict(message.properties), message.born_timestamp
        offset = found.next_offset


def _read(file: Path) -> Journal | None:
    try:
        facts = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return Journal(**{**facts, "files": tuple(facts["files"])})


def _write(home: Path, journal: Journal) -> None:
    replace_file(home / f"{journal.job}.json", json.dumps(asdict(journal)).encode(), backup=False)


def _end(home: Path, journal: Journal) -> None:
    """Mark a stream's batch as done, or delete the journal of a batch write."""
    if journal.batch_id is None:
        (home / f"{journal.job}.json").unlink(missing_ok=True)
    else:
        _write(home, Journal(journal.job, journal.batch_id, done=True))
