"""Turn checked options into partitions: which folders, which offsets, how large a task."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from pyledger import arrow
from pyledger.arrow import Partition
from pyledger.errors import ConfigError, PyLedgerError, StoreIOError, StoreNotFoundError
from pyledger.store.files.folder import holds_log, log_extent_bytes
from pyledger.store.reading.reader import StoreReader
from pyspark_pyledger.offsets import Offsets
from pyspark_pyledger.options import EARLIEST, OFFSET_EARLIEST, OFFSET_LATEST, End, ReadOptions

log = logging.getLogger("pyledger.spark")

PARTITION_BYTES_MAX = 512 << 20
"""Bounds the work that a failed task repeats to a second or two; it does not bound memory."""
PARTITION_BYTES_MIN = 8 << 20
"""A task costs about 50 ms, which is too much for each small file."""
TASKS_MAX = 100_000
"""Spark's driver holds all tasks in memory; beyond this number partitions grow instead."""


def plan_folders(options: ReadOptions) -> list[Partition]:
    """Pin the end of every folder and split the selected range into partitions of about equal bytes.

    Raises:
        ConfigError: a topic is in none of the folders, or offsets are out of range with failOnDataLoss.
        StoreNotFoundError: a path holds no store.
    """
    folders = named_folders(options.paths)
    total, in_last = map(sum, zip(*(log_extent_bytes(folder) for _source, folder in folders), strict=True))
    known: set[str] = set()
    parts: list[Partition] = []
    with ExitStack() as held:
        opened: Iterable[tuple[str, StoreReader]] = _open(folders, options)
        if in_last > total // 8:
            # The last file is preallocated and may be almost empty. There are few files, so all stay open.
            opened = [(source, held.enter_context(reader)) for source, reader in opened]
            total = sum(reader.max_offset - reader.min_offset for _source, reader in opened)
        size = partition_bytes(total, options)
        for source, reader in opened:
            with reader:
                if options.topics is not None:
                    known |= _topics_of(reader)
                parts += _plan_folder(source, reader, size, options, len(folders))
    for topic in options.topics or ():
        if topic not in known:
            raise ConfigError(
                "topics", f"there is no topic {topic!r}", f"there are {', '.join(sorted(known))}"
            )
    return parts


def _open(folders: list[tuple[str, str]], options: ReadOptions) -> Iterator[tuple[str, StoreReader]]:
    for source, folder in folders:
        yield source, StoreReader.open(folder, on_corrupt=options.on_corrupt, map_lazily=True)


def _plan_folder(
    source: str, reader: StoreReader, size_bytes: int, options: ReadOptions, folder_count: int
) -> list[Partition]:
    return arrow.plan(
        reader,
        min_partitions=-(-min(options.min_partitions or 1, TASKS_MAX) // folder_count),
        spread=-(-(os.cpu_count() or 1) // folder_count),
        max_partition_bytes=size_bytes,
        max_partition_records=options.max_records_per_partition,
        on_corrupt=options.on_corrupt,
        topics=_present(reader, options.topics),
        topics_pattern=options.topics_pattern,
        queues=options.queues,
        starting_offsets=_bounded(
            source, reader, options.starting_offsets or EARLIEST, "startingOffsets", options
        ),
        ending_offsets=_bounded(source, reader, options.ending_offsets, "endingOffsets", options),
        since=options.starting_timestamp_ms,
        until=options.ending_timestamp_ms,
        tags=options.tags,
        include_unindexed=options.include_unindexed,
    )


def named_folders(
    paths: tuple[str, ...], missing: dict[str, PyLedgerError] | None = None
) -> list[tuple[str, str]]:
    """Find the store folders below some paths, each with the source name of its queues.

    Args:
        paths: As given in the options.
        missing: Receives the paths that hold no store or cannot be read, with the error. None: raise it.

    Raises:
        StoreNotFoundError: a path holds no store.
        StoreIOError: a path cannot be read.
    """
    folders: list[str] = []
    for path in paths:
        try:
            folders += store_folders(path)
        except (StoreNotFoundError, StoreIOError) as error:
            if missing is None:
                raise
            missing[path] = error
    if len(paths) == 1:
        return [("" if folder == paths[0] else os.path.basename(folder), folder) for folder in folders]
    # A folder that is named twice is read twice; its name must not depend on the contents of other paths.
    counts = [folders[:at].count(folder) for at, folder in enumerate(folders)]
    return [(f"{f}#{count}" if count else f, f) for f, count in zip(folders, counts, strict=True)]


def _may_hold_log(path: str) -> bool:
    """Return whether a folder is a store or cannot be read; opening it then raises the error."""
    if os.path.basename(path) == "lost+found":
        return False
    try:
        return holds_log(path)
    except StoreIOError:
        return True


def store_folders(path: str) -> Iterator[str]:
    """Yield the store folders of a path: itself, or the broker folders in it.

    Raises:
        StoreNotFoundError: there are none.
    """
    if holds_log(path):
        yield path
        return
    try:
        children = sorted(os.listdir(path))
    except OSError as error:
        raise StoreNotFoundError(path, error.strerror or "cannot be listed") from error
    brokers = [child for child in children if _may_hold_log(os.path.join(path, child))]
    if not brokers:
        above = os.path.dirname(os.path.abspath(path))
        remedy = (f"did you mean {above}?",) if holds_log(above) else ()
        raise StoreNotFoundError(path, "neither a store nor a folder of stores", *remedy)
    for child in brokers:
        yield os.path.join(path, child)


def _topics_of(reader: StoreReader) -> set[str]:
    return {topic for topic, _queue_id in reader.queues()}


def _present(reader: StoreReader, wanted: tuple[str, ...] | None) -> list[str] | None:
    """Return the selected topics that this folder has; others may be in another folder."""
    return None if wanted is None else [topic for topic in wanted if topic in _topics_of(reader)]


def partition_bytes(total: int, options: ReadOptions) -> int:
    """Return the log bytes of one task, given the total."""
    if options.max_bytes_per_partition is not None:
        return options.max_bytes_per_partition
    least = -(-total // TASKS_MAX)
    if options.min_partitions is not None:
        return max(least, min(PARTITION_BYTES_MAX, max(1, -(-total // options.min_partitions))))
    even = max(PARTITION_BYTES_MIN, -(-total // (os.cpu_count() or 1)))
    return max(least, min(PARTITION_BYTES_MAX, even))


def _bounded(
    source: str, reader: StoreReader, offsets: End | Offsets, name: str, options: ReadOptions
) -> End | dict[str, dict[int, int]]:
    """Convert offsets for `arrow.plan`; one out of range raises, or is moved to the nearest end."""
    if isinstance(offsets, str):
        return offsets
    held = reader.queues()
    nested: dict[str, dict[int, int]] = {}
    for (topic, of_source, queue_id), offset in offsets.items():
        if of_source not in ("", source):
            continue
        queue = held.get((topic, queue_id))
        if queue is None:
            _lose(f"{topic}/{queue_id} is not in {reader.path}", name, options)
            continue
        if (
            offset not in (OFFSET_EARLIEST, OFFSET_LATEST)
            and not queue.min_offset <= offset <= queue.max_offset
        ):
            _lose(
                f"{topic}/{queue_id} holds [{queue.min_offset}, {queue.max_offset}), not {offset}",
                name,
                options,
            )
            nested.setdefault(topic, {})[queue_id] = min(max(offset, queue.min_offset), queue.max_offset)
        else:
            nested.setdefault(topic, {})[queue_id] = offset
    return nested


def _lose(what: str, name: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise ConfigError(name, what, "set failOnDataLoss=false to read the data that exists")
    log.warning("%s: %s; reading what is there", name, what)
