"""Staged rows become messages, once: a journal beside them says what is under way and what is done.

The journal is written before the first append and names the staged files and where every queue ended. Whoever
finds it unfinished appends the rest: rows have one order, so those that are there already are the first of
each queue. The journal of a stream keeps the number of its last batch, which makes a batch that comes a
second time one that is done.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyledger.atomic_file import replace_file
from pyledger.store.folder import STAGING_FOLDER
from pyledger.store.message_store import MessageStore
from pyledger.store.queue_reader import java_hash_code
from pyledger.store.read_result import GetStatus
from pyspark_pyledger.staging import StagedFile, read_staged, staging_folder, sweep
from pyspark_pyledger.write_options import WriteOptions

Queue = tuple[str, int]
Row = tuple[bytes, str | None, str | None, dict[str, str] | None, int]
"""Body, tags, keys, other properties, born timestamp (ms)."""
_READ_COUNT = 256


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
    """Append what tasks have staged, and finish what an earlier publication left undone.

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
    sizes: dict[str, Any] = {}
    if options.log_file_size_bytes is not None:
        sizes["mapped_file_size_bytes"] = options.log_file_size_bytes
    with MessageStore.open(options.path, **sizes) as store:
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
    sweep(home / job)
    return count


def finish(store: MessageStore) -> int:
    """Finish the publications that were broken off in a store; how many."""
    return len(list(_finish_others(store, Path(store.path) / STAGING_FOLDER)))


def _finish_others(store: MessageStore, home: Path) -> Iterator[Journal]:
    for file in sorted(home.glob("*.json")):
        journal = _read(file)
        if journal is not None and not journal.done:
            _append(store, journal, resumed=True)
            store.flush()
            _end(home, journal)
            sweep(home / journal.job)
            yield journal


def _begin(
    store: MessageStore, options: WriteOptions, job: str, batch_id: int | None, files: list[StagedFile]
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


def _append(store: MessageStore, journal: Journal, *, resumed: bool = False) -> int:
    """Append the rows of a journal, when it is resumed without those that are there."""
    queue_counts, ends = journal.queue_counts or {}, journal.ends or {}
    turns: dict[str, int] = {}
    there: dict[Queue, Iterator[Row]] = {}
    appenders: dict[Queue, Any] = {}
    count = 0
    for batch in read_staged(staging_folder(store.path, journal.job), journal.files):
        for queue, row in _rows(batch, journal, queue_counts, turns):
            if resumed:
                if queue not in there:
                    there[queue] = _stored(store, queue, ends.get(queue[0], {}).get(str(queue[1]), 0))
                if next(there[queue], None) == row:
                    continue
                there[queue] = iter(())
            body, tags, keys, properties, born_ms = row
            appender = appenders.get(queue)
            if appender is None:
                appender = appenders[queue] = store.appender(*queue)
            appender.put(body, tags, keys, properties, born_timestamp_ms=born_ms)
            count += 1
    return count


def _rows(
    batch: Any, journal: Journal, queue_counts: dict[str, int], turns: dict[str, int]
) -> Iterator[tuple[Queue, Row]]:
    """The rows of a batch and their queues: as the row says, by its keys, or in turn."""
    absent = [None] * batch.num_rows
    columns = {name: batch.column(name) for name in batch.schema.names}

    def values(name: str) -> list[Any]:
        return columns[name].to_pylist() if name in columns else absent

    topics = [journal.topic] * batch.num_rows if journal.topic is not None else values("topic")
    born = columns["bornTimestamp"].cast("int64").to_pylist() if "bornTimestamp" in columns else absent
    for topic, asked, own_keys, own_tags, body, pairs, born_ms in zip(
        topics, values("queueId"), values("keys"), values("tags"), values("body"), values("properties"), born,
        strict=True,
    ):  # fmt: skip
        properties, keys, tags = None, own_keys, own_tags
        if pairs:
            properties = dict(pairs)
            named_keys, named_tags = properties.pop("KEYS", None), properties.pop("TAGS", None)
            keys, tags = keys or named_keys, tags or named_tags
        if asked is not None:
            queue_id = asked
        elif keys:
            # As RocketMQ's queue choice by hash.
            queue_id = abs(java_hash_code(keys)) % queue_counts[topic]
        else:
            queue_id = turns.get(topic, 0) % queue_counts[topic]
            turns[topic] = turns.get(topic, 0) + 1
        row = body, tags or None, keys or None, properties or None, born_ms or journal.born_ms
        yield (topic, queue_id), row


def _stored(store: MessageStore, queue: Queue, offset: int) -> Iterator[Row]:
    """What a queue holds from an offset on, in the form of rows."""
    while True:
        found = store.get(*queue, offset, max_count=_READ_COUNT)
        if found.status is not GetStatus.FOUND:
            return
        for message in found.messages:
            others = {
                name: value for name, value in message.properties.items() if name not in ("TAGS", "KEYS")
            }
            yield message.body, message.tags, message.keys, others or None, message.born_timestamp
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
