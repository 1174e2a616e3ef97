"""What the consume queues of a folder name after a recovery, found without changing a byte.

Where the log must be walked for units depends on the last exit. After one in good order everything up to the
record that the furthest queue names was dispatched; what follows is derived, and the last log file, so that a
queue which lost its end is noticed. After an unclean one the
checkpoint says up to which store time queue files are on disk; from the last log file that begins before it
everything is derived anew.

A queue that lost its last file ends where the file before it does, which others hardly ever do: the log is
walked from the last record of each such queue.
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
class ReadQueues:
    """All queues of a folder, and up to where the log was looked at for them."""

    folder: StoreFolder
    by_name: dict[Queue, QueueUnits] = field(default_factory=dict)
    derived_from: int = 0
    """Physical offset (bytes) from which units were derived from records."""
    end_offset: int = 0
    """Physical offset (bytes) up to which they were."""
    damages: list[Damage] = field(default_factory=list)
    """Damage that the walk met: the queues may lack messages there."""
    torn: set[Queue] = field(default_factory=set)
    """Queues whose files cannot be trusted: their units are derived from the whole log."""
    beyond_end: bool = False
    """A queue names records behind the end of the log."""
    _collector: UnitCollector | None = None
    _start_offset: int = 0

    def advance(self, view: LogView) -> None:
        """Take in records that were appended since, and forget those that were deleted."""
        if self._collector is None:
            batch_topics = {topic for topic, _, _ in self.folder.queue_folders(BATCH_QUEUE_FOLDER)}
            self._collector = UnitCollector(batch_topics)
            self._start_offset = view.start_offset
        self._take_runs(collect_runs(self._collector, view, self.end_offset, view.end_offset, self.damages))
        self.end_offset = view.end_offset
        if self._start_offset != view.start_offset:
            self._start_offset = view.start_offset
            for queue in self.by_name.values():
                queue.correct_min(view.start_offset)
        if len(self.by_name) > _OPEN_QUEUES_MAX:
            self.close()

    def _take_runs(self, runs: dict[Queue, UnitRange]) -> None:
        for name, run in runs.items():
            if name not in self.by_name:
                self.by_name[name] = QueueUnits(self.folder.path, *name, run.batch)
            self.by_name[name].add(run)
            if run.batch and run.repeated:
                # A batch that states too high a number, or begins too low, hides those behind it.
                problem = f"{run.repeated} records of {name[0]}/{name[1]} have queue offsets that were given"
                self.damages.append(Damage(run.odd_where, 0, problem))

    def mend_gaps(self, view: LogView) -> None:
        """Derive queues anew whose files hold nothing, or lack units before the first derived one."""
        torn = self.torn | {
            name
            for name, queue in self.by_name.items()
            if queue.stored_end < queue.derived_first or not queue.max_offset
        }
        if not torn or self.derived_from == view.start_offset:
            return
        collector = UnitCollector({name[0] for name in torn if self.by_name[name].batch})
        runs = collect_runs(collector, view, view.start_offset, view.end_offset, self.damages)
        for name in torn & runs.keys():
            self.by_name[name] = QueueUnits(self.folder.path, *name, runs[name].batch)
            self.by_name[name].add(runs[name])

    def close(self) -> None:
        """Let go of the queue files; they are opened again when needed."""
        for queue in self.by_name.values():
            queue.close()


def recover_queues(folder: StoreFolder, view: LogView, checkpoint: StoreCheckpoint | None) -> ReadQueues:
    """Find what each queue names after a recovery.

    Cost: opens every queue once; one pass over the part of the log that is not proved to be dispatched.
    """
    queues = ReadQueues(folder)
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
            queues.by_name[name].cut_stored(start)
    queues.advance(view)
    queues.mend_gaps(view)
    queues.by_name = {name: queue for name, queue in queues.by_name.items() if queue.max_offset}
    return queues


def record_boundary(view: LogView, offset: int) -> int:
    """The first place at or behind a physical offset (bytes) where a record starts.

    Cost: O(1) where one starts right there; else one pass over the record heads of the file before it.
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


def collect_runs(
    collector: UnitCollector, view: LogView, start: int, end: int, damages: list[Damage]
) -> dict[Queue, UnitRange]:
    """Gather the units of a range of the log, over damage in it."""
    where = collector.collect(view, start, end)
    while where < end:
        behind = find_next_record(view, where + 1, end) or end
        damages.append(Damage(where, behind - where, scan(view, where, where + 1).problem or "zeroes"))
        where = collector.collect(view, behind, end)
    return collector.take()


def _stored_names(folder: StoreFolder) -> Iterator[tuple[str, int, bool]]:
    for kind, batch in _KINDS:
        for topic, queue_id, _ in folder.queue_folders(kind):
            yield topic, queue_id, batch


def _add_stored(
    queues: ReadQueues, view: LogView, topic: str, queue_id: int, batch: bool, file_size_bytes: int
) -> tuple[int, bool]:
    """Enter what the files of one queue hold.

    Returns:
        Where its last record ends (of a batch: starts), and whether its units end where a file does.
    """
    stored = open_stored(queues.folder.path, topic, queue_id, batch=batch)
    dropped = stored.recover(view)
    files = offset_files(stored.folder)
    lacks_head = view.start_offset == 0 and stored.max_offset > 0 and stored.min_offset > 0
    odd = any(file.size_bytes != file_size_bytes for file in files)
    if stored.incomplete or lacks_head or odd or len(stored.files) < len(files):
        queues.torn.add((topic, queue_id))
    if dropped and queues.folder.clean:
        # A unit behind the end, after an exit in good order: it is damaged, or the log is.
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
