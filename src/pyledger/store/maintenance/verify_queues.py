"""Check consume queues against the log: every unit against its record, every record against its unit."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyledger._core import LogView, UnitCollector, UnitRange, find_next_record
from pyledger.errors import IllegalMessageError
from pyledger.model.names import LIGHT_QUEUE_PREFIX
from pyledger.store.files.finding import Finding, Severity
from pyledger.store.files.folder import BATCH_QUEUE_FOLDER, QUEUE_FOLDER, StoreFolder, offset_files
from pyledger.store.queues.queue_units import StoredQueue, open_stored
from pyledger.store.queues.units import BATCH_UNIT_BYTES, UNIT_BYTES, batch_at, differing_units, same_bytes

Queue = tuple[str, int]
_SHOWN_MAX = 10
_OPEN_MAX = 512


@dataclass(slots=True)
class _Seen:
    """The queue offsets of one queue seen in the log so far."""

    first: int = -1
    next: int = 0
    faults: int = 0


@dataclass(slots=True)
class QueueCheck:
    """Compares the queues with the log, one log file at a time."""

    folder: StoreFolder
    view: LogView
    _collector: UnitCollector = field(init=False)
    _seen: dict[Queue, _Seen] = field(default_factory=dict)
    _open: dict[Queue, StoredQueue] = field(default_factory=dict)
    _stored: dict[Queue, bool] = field(default_factory=dict)
    """Whether each queue that has files is a batch queue."""

    def __post_init__(self) -> None:
        for kind, batch in ((QUEUE_FOLDER, False), (BATCH_QUEUE_FOLDER, True)):
            for topic, queue_id, _ in self.folder.queue_folders(kind):
                # The records of a light queue belong to other queues, too.
                if not topic.startswith(LIGHT_QUEUE_PREFIX):
                    self._stored[topic, queue_id] = batch
        self._collector = UnitCollector({name[0] for name, batch in self._stored.items() if batch})

    def check_files(self) -> Iterator[Finding]:
        """Report files of a different size: they can be read, but not appended to."""
        for kind, unit_bytes in ((QUEUE_FOLDER, UNIT_BYTES), (BATCH_QUEUE_FOLDER, BATCH_UNIT_BYTES)):
            size_bytes = self.folder.queue_file_size_bytes(kind)
            for _, _, path in self.folder.queue_folders(kind):
                for file in offset_files(path):
                    if file.size_bytes != size_bytes:
                        detail = f"has {file.size_bytes} bytes, the others {size_bytes}"
                        first = file.start_offset // unit_bytes
                        yield Finding("queue-file", file.path, first, detail)

    def check_range(self, start: int, end: int) -> Iterator[Finding]:
        """Compare the units of records in a range of the log (bytes)."""
        where = self._collector.collect(self.view, start, end)
        while where < end:
            where = self._collector.collect(
                self.view, find_next_record(self.view, where + 1, end) or end, end
            )
        for name, units in sorted(self._collector.take().items()):
            seen = self._seen.setdefault(name, _Seen())
            if seen.first < 0:
                seen.first = units.first_queue_offset
            seen.next = units.next_queue_offset
            yield from self._check_numbers(name, units)
            if name in self._stored:
                yield from self._compare(name, units, seen)

    def check_rest(self) -> Iterator[Finding]:
        """Report units without a record, and queues without files."""
        missing: Severity = "note" if not self._stored or not self.folder.clean else "error"
        for name, seen in sorted(self._seen.items()):
            if name not in self._stored:
                count = seen.next - seen.first
                if not _can_have_files(self.folder.path, name):
                    yield self._finding(
                        "illegal-topic", name, seen.first, f"no folder can have this name; {count} messages"
                    )
                    continue
                yield self._finding(
                    "queue-missing", name, seen.first, f"no files for {count} messages", missing
                )
        for name in sorted(self._stored):
            stored = self._queue(name)
            stored.correct_min_offset(self.view.start_offset)
            known = self._seen.get(name)
            first, end = (known.first, known.next) if known else (stored.max_offset, stored.min_offset)
            if known and stored.min_offset < first:
                detail = f"units before {first} name no record of this queue"
                yield self._finding("queue-beyond", name, stored.min_offset, detail)
            if stored.max_offset > end:
                detail = f"units before {stored.max_offset} name no record of this queue"
                severity: Severity = "error" if self.folder.clean else "note"
                yield self._finding("queue-beyond", name, max(end, stored.min_offset), detail, severity)

    def _check_numbers(self, name: Queue, units: UnitRange) -> Iterator[Finding]:
        where = f"the first at physical offset {units.odd_where}"
        if units.miscounted:
            detail = f"{units.miscounted} batches state a wrong number of messages, {where}"
            yield self._finding("batch-count", name, units.first_queue_offset, detail)
        if units.repeated:
            detail = f"{units.repeated} records repeat queue offsets of earlier ones, {where}"
            yield self._finding("unreachable", name, units.next_queue_offset, detail)

    def _compare(self, name: Queue, units: UnitRange, seen: _Seen) -> Iterator[Finding]:
        stored = self._queue(name)
        first, size = units.first_queue_offset, BATCH_UNIT_BYTES if units.batch else UNIT_BYTES
        wanted = memoryview(units)
        at = 0
        while at < len(wanted):
            queue_offset = first if at == 0 else _offset_at(wanted, at, first, size)
            found = stored.units(queue_offset, (len(wanted) - at) // size)
            if not found.nbytes or stored.max_offset <= queue_offset:
                detail = f"units from here to {units.next_queue_offset} are missing"
                severity: Severity = "error" if self.folder.clean else "note"
                yield self._finding("queue-missing", name, queue_offset, detail, severity)
                return
            part = wanted[at : at + found.nbytes]
            if not same_bytes(found, part):
                for index, detail in differing_units(found, part, size):
                    seen.faults += 1
                    if seen.faults <= _SHOWN_MAX:
                        where = _offset_at(wanted, at + index * size, first, size)
                        yield self._finding("queue-unit", name, where, detail)
            at += found.nbytes

    def _queue(self, name: Queue) -> StoredQueue:
        if name not in self._open:
            if len(self._open) >= _OPEN_MAX:
                self.close()
            stored = open_stored(self.folder.path, *name, batch=self._stored[name])
            stored.recover(files=0)
            self._open[name] = stored
        return self._open[name]

    def _finding(self, kind: str, name: Queue, at: int, detail: str, severity: Severity = "error") -> Finding:
        kind_folder = BATCH_QUEUE_FOLDER if self._stored.get(name) else QUEUE_FOLDER
        path = f"{self.folder.path}/{kind_folder}/{name[0]}/{name[1]}"
        return Finding(kind, path, at, detail, severity)

    def close(self) -> None:
        """Close the queue files."""
        for stored in self._open.values():
            stored.close()
        self._open.clear()


def _can_have_files(path: str, name: Queue) -> bool:
    try:
        open_stored(path, *name, batch=False).close()
    except IllegalMessageError:
        return False
    return True


def _offset_at(units: memoryview, at: int, first: int, size: int) -> int:
    """Queue offset of the unit at a byte position."""
    if size == UNIT_BYTES:
        return first + at // size
    return batch_at(units, at // size)[0]
