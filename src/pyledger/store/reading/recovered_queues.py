"""The consume queues of a folder as a recovery would leave them, found without changing a byte.

Units are read from queue files, and derived from the log for the rest. After a clean shutdown everything up
to the last record that a queue names was dispatched; units are derived from there on, and for the last log
file, so that a queue with a missing end is noticed. After an unclean shutdown the checkpoint states up to
which store time queue files are on disk; units are derived from the last log file that begins before that
time.

A queue without its last file ends at the end of a file, which is rare otherwise: for each such queue the log
is scanned from its last record on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyledger._core import LogView, UnitCollector, UnitRange, find_next_record, scan
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import BATCH_QUEUE_FOLDER, QUEUE_FOLDER, StoreFolder, offset_files
from pyledger.store.queues.queue_units import QueueUnits, open_stored
from pyledger.store.reading.log_end import FIRST_RECORD_BYTES, Damage, start_file_offset

Queue = tuple[str, int]
_OPEN_QUEUES_MAX = 1024
_KINDS = ((QUEUE_FOLDER, False), (BATCH_QUEUE_FOLDER, True))


@dataclass(slots=True)
class RecoveredQueues:
    """All queues of a folder, and the range of the log from which their units were derived."""

    folder: StoreFolder
    by_name: dict[Queue, QueueUnits] = field(default_factory=dict)
    derived_from: int = 0
    """Physical offset (bytes) from which units were derived from records."""
    end_offset: int = 0
    """Physical offset (bytes) up to which they were."""
    damages: list[Damage] = field(default_factory=list)
    """Damage in that range, where messages may be missing from the queues."""
    torn: set[Queue] = field(default_factory=set)
    """Queues whose files cannot be trusted: their units are derived from the whole log."""
    beyond_end: bool = False
    """A queue names records after the end of the log."""
    _collector: UnitCollector | None = None
    _start_offset: int = 0

    def advance(self, view: LogView) -> None:
        """Add records appended since, and forget those that were deleted."""
        if self._collector is None:
            batch_topics = {topic for topic, _, _ in self.folder.queue_folders(BATCH_QUEUE_FOLDER)}
            self._collector = UnitCollector(batch_topics)
            self._start_offset = view.start_offset
        self._add_units(collect_units(self._collector, view, self.end_offset, view.end_offset, self.damages))
        self.end_offset = view.end_offset
        if self._start_offset != view.start_offset:
            self._start_offset = view.start_offset
            for queue in self.by_name.values():
                queue.correct_min(view.start_offset)
        if len(self.by_name) > _OPEN_QUEUES_MAX:
            self.close()

    def _add_units(self, collected: dict[Queue, UnitRange]) -> None:
        for name, units in collected.items():
            if name not in self.by_name:
                self.by_name[name] = QueueUnits(self.folder.path, *name, units.batch)
            self.by_name[name].add(units)
            if units.batch and units.repeated:
                # A batch with too high a message count, or too low an offset, hides those after it.
                problem = f"{units.repeated} records of {name[0]}/{name[1]} repeat queue offsets"
                self.damages.append(Damage(units.odd_where, 0, problem))

    def fill_gaps(self, view: LogView) -> None:
        """Derive queues from the whole log if their files are empty or end before the first derived unit."""
        torn = self.torn | {
            name
            for name, queue in self.by_name.items()
            if queue.stored_end < queue.derived_first or not queue.max_offset
        }
        if not torn or self.derived_from == view.start_offset:
            return
        collector = UnitCollector({name[0] for name in torn if self.by_name[name].batch})
        collected = collect_units(collector, view, view.start_offset, view.end_offset, self.damages)
        for name in torn & collected.keys():
            self.by_name[name] = QueueUnits(self.folder.path, *name, collected[name].batch)
            self.by_name[name].add(collected[name])

    def close(self) -> None:
        """Close the queue files; they are opened again when needed."""
        for queue in self.by_name.values():
            queue.close()


def recover_queues(folder: StoreFolder, view: LogView, checkpoint: StoreCheckpoint | None) -> RecoveredQueues:
    """Read the queues as a recovery would leave them.

    Cost: opens every queue once; one pass over the part of the log that is not known to be dispatched.
    """
    queues = RecoveredQueues(folder)
    sizes = {batch: folder.queue_file_size_bytes(kind) for kind, batch in _KINDS}
    ends: dict[Queue, int] = {}
    whole: list[int] = []
    for topic, queue_id, batch in _stored_names(folder):
        end, ends_with_file = _add_stored(queues, view, topic, queue_id, batch, sizes[batch])
        ends[topic, queue_id] = end
        if ends_with_file and end >= 0 and (topic, queue_id) not in queues.torn:
            whole.append(end)
    furthest = max(ends.values(), default=-1)
    if not folder.clean:
        proved_ms = checkpoint.min_timestamp_ms if checkpoint else 0
        start = start_file_offset(view, clean=False, durable_ms=proved_ms)
    elif furthest < view.start_offset:
        start = view.start_offset
    else:
        start = record_boundary(view, min(furthest, view.end_offset))
        start = min(start, start_file_offset(view, clean=True, durable_ms=0))
    doubtful = max(min(whole, default=start), view.start_offset)
    if doubtful < start:
        start = record_boundary(view, doubtful)
    queues.derived_from = queues.end_offset = start
    for name, end in ends.items():
        if end >= start:
            queues.by_name[name].truncate_stored(start)
    queues.advance(view)
    queues.fill_gaps(view)
    queues.by_name = {name: queue for name, queue in queues.by_name.items() if queue.max_offset}
    return queues


def record_boundary(view: LogView, offset: int) -> int:
    """Return the first physical offset (bytes) at or after another where a record starts.

    Cost: O(1) if a record starts there; else one pass over the record headers of the file before it.
    """
    if offset >= view.end_offset:
        return view.end_offset
    if scan(view, offset, offset + FIRST_RECORD_BYTES, check=False).next_offset > offset:
        return offset
    files = [file.start_offset for file in view.files if file.start_offset <= offset]
    where = files[-1] if files else view.start_offset
    while where < offset:
        stop = scan(view, where, offset, check=False)
        where = stop.next_offset
        if where < offset:
            where = find_next_record(view, where + 1) or view.end_offset
    return min(where, view.end_offset)


def collect_units(
    collector: UnitCollector, view: LogView, start: int, end: int, damages: list[Damage]
) -> dict[Queue, UnitRange]:
    """Collect the units of a range of the log; skip damage and add it to `damages`."""
    where = collector.collect(view, start, end)
    while where < end:
        following = find_next_record(view, where + 1, end) or end
        damages.append(Damage(where, following - where, scan(view, where, where + 1).problem or "zeroes"))
        where = collector.collect(view, following, end)
    return collector.take()


def _stored_names(folder: StoreFolder) -> Iterator[tuple[str, int, bool]]:
    for kind, batch in _KINDS:
        for topic, queue_id, _ in folder.queue_folders(kind):
            yield topic, queue_id, batch


def _add_stored(
    queues: RecoveredQueues, view: LogView, topic: str, queue_id: int, batch: bool, file_size_bytes: int
) -> tuple[int, bool]:
    """Add the units in the files of one queue.

    Returns:
        Where its last record ends (of a batch: starts), and whether its units end at the end of a file.
    """
    stored = open_stored(queues.folder.path, topic, queue_id, batch=batch)
    dropped = stored.recover(view)
    files = offset_files(stored.folder)
    head_missing = view.start_offset == 0 and stored.max_offset > 0 and stored.min_offset > 0
    odd = any(file.size_bytes != file_size_bytes for file in files)
    if stored.incomplete or head_missing or odd or len(stored.files) < len(files):
        queues.torn.add((topic, queue_id))
    if dropped and queues.folder.clean:
        # A unit names a record after the end, after a clean shutdown: the unit or the log is damaged.
        queues.torn.add((topic, queue_id))
        queues.beyond_end = True
    stored.correct_min_offset(view.start_offset)
    queue = QueueUnits(queues.folder.path, topic, queue_id, batch)
    queue.min_offset = stored.min_offset
    queue.stored_end = queue.max_offset = stored.max_offset
    furthest, ends_with_file = stored.max_physical_offset, stored.end_where % file_size_bytes == 0
    stored.close()
    queues.by_name[topic, queue_id] = queue
    return furthest, ends_with_file
