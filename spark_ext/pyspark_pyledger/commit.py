"""Staged rows become messages, once: a journal beside them says what is under way and what is done.

The journal is written before the first append and names the staged files and where every queue ended. Whoever
finds it unfinished appends the rest: rows have one order, so those that are there already are the first of
each queue. The journal of a stream keeps the number of its last batch, which makes a batch that comes a
second time one that is done.
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
"""What a new file of the log takes of the disk before there is anything in it."""


@dataclass(frozen=True, slots=True)
class Journal:
    """One publication."""

    job: str
    batch_id: int | None
    """Of a stream."""
    done: bool
    files: tuple[str, ...] = ()
    topic: str | None = None
    queue_counts: dict[str, int] | None = None
    """Queues that rows without a queue id are spread over, by topic."""
    ends: dict[str, dict[str, int]] | None = None
    """Queue offset that each queue had before, by topic and queue id."""
    born_ms: int = 0
    """Born timestamp of rows without one."""


def publish(options: WriteOptions, job: str, batch_id: int | None, staged: Iterable[StagedFile]) -> int:
    """Append what tasks have staged, finish what was broken off earlier, and remove what nobody will publish.

    Args:
        options: Of the write.
        job: Names the staging folder, and a stream's journal.
        batch_id: Of a stream; one that is done already is only swept away.
        staged: From all tasks, in the order of the tasks.

    Returns:
        Messages appended for this job.

    Raises:
        StoreLockedError: somebody else writes to the store.
        StoreFullError: no space; the next publication goes on.

    Durability: on return messages and journal survive a power cut.
    """
    files = [file for file in staged if file.row_count]
    home = Path(options.path) / STAGING_FOLDER
    home.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, Any] = {"first_chunk_bytes": FIRST_CHUNK_BYTES}
    if options.log_file_size_bytes is not None:
        sizes["mapped_file_size_bytes"] = options.log_file_size_bytes
    # Staged files are removed while the store closes, two at a time: the kernel takes their pages one by one.
    with ThreadPoolExecutor(2) as aside, StoreEngine.open(options.path, **sizes) as store:
        finished = {journal.job: journal for journal in _finish_others(store, home)}
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


def finish(store: StoreEngine) -> int:
    """Finish the publications that were broken off in a store; how many."""
    return len(list(_finish_others(store, Path(store.path) / STAGING_FOLDER)))


def _finish_others(store: StoreEngine, home: Path) -> Iterator[Journal]:
    for file in sorted(home.glob("*.json")):
        journal = _read(file)
        if journal is not None and not journal.done:
            _append(store, journal, resumed=True)
            store.flush()
            _end(home, journal)
            sweep(home / journal.job)
            yield journal


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
    """Append the rows of a journal, when it is resumed without those that are there."""
    there: dict[Queue, Iterator[Row]] = {}
    count = 0
    for topic, placed, chosen in _placed(store, journal):
        rows, queue_ids = placed, chosen
        if resumed:
            missing = _missing(store, journal, topic, placed, chosen, there)
            rows, queue_ids = placed.filter(missing), chosen.filter(missing)
        if not rows.num_rows:
            continue
        store.append_rows(
            topic, _values(queue_ids), _texts(rows.column("body")), _texts(rows.column("properties")),
            _values(_born(rows, journal)),
        )  # fmt: skip
        count += rows.num_rows
    return count


def _placed(store: StoreEngine, journal: Journal) -> Iterator[tuple[str, Any, Any]]:
    """Topics, rows, and the queues of the rows: as the row says, by its keys, or in turn."""
    counts, turns = journal.queue_counts or {}, dict.fromkeys(journal.queue_counts or {}, 0)
    for batch in read_staged(staging_folder(store.path, journal.job), journal.files):
        for topic in [journal.topic] if journal.topic else pc.unique(batch.column("topic")).to_pylist():
            rows = batch if journal.topic else batch.filter(pc.equal(batch.column("topic"), topic))
            asked, keys = _values(rows.column("queueId")), _texts(rows.column("keys"))
            chosen, turns[topic] = choose_queues(asked, *keys, counts[topic], turns[topic])
            yield topic, rows, pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(chosen)])


def _missing(
    store: StoreEngine, journal: Journal, topic: str, rows: Any, queue_ids: Any,
    there: dict[Queue, Iterator[Row]],
) -> Any:  # fmt: skip
    """Which rows are not in the store. Those that are there already are the first of their queues."""
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
    """The rows of a batch, to be compared with what is stored."""
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
    """What a queue holds from an offset on, in the form of rows."""
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
    """Note that a stream's batch is done; the journal of a batch write has served."""
    if journal.batch_id is None:
        (home / f"{journal.job}.json").unlink(missing_ok=True)
    else:
        _write(home, Journal(journal.job, journal.batch_id, done=True))
