"""`StoreReader`: any store folder, ours or Java's, running or crashed, without changing a byte of it.

It takes no lock and pins a consistent end: the end of the last valid record, as recovery would find it.
`refresh` moves the end over what a writer has appended. The log is the authority; queue and index files save
scanning it, and what they miss is derived from the log.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Literal, Self, get_args

from pyledger._core import LogView, StoredMessage, read_message, read_messages
from pyledger.config.fields import checked_choice, checked_function
from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError, StoreClosedError
from pyledger.model.message import QueueRange
from pyledger.model.times import Time, stored_between, time_ms
from pyledger.store.files import checkpoint
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import CHECKPOINT_FILE, StoreFolder, read_with_retries
from pyledger.store.queues.queue_units import QueueUnits
from pyledger.store.queues.units import Raw, Units, keep_tags
from pyledger.store.reading.key_index import QUERY_MAX, KeyIndex, recover_index
from pyledger.store.reading.log_end import Damage, LogEnd, entries_view, find_log_end, whole_view
from pyledger.store.reading.log_walk import LogWalk
from pyledger.store.reading.lost_end import LostEnd, find_lost_end, may_miss_end
from pyledger.store.reading.mapped_files import MappedFiles
from pyledger.store.reading.queue_ends import QueueEnd
from pyledger.store.reading.record_hints import RecordHints
from pyledger.store.reading.recovered_queues import RecoveredQueues, recover_queues
from pyledger.store.reading.selection import Selection, carries_key, check_reading
from pyledger.wire.record.message_id import decode_message_id

OnCorrupt = Literal["error", "skip"]
_CHUNK_UNITS = 1024


class StoreReader:
    """A read-only view of a store folder, pinned at the end that was found when it was opened or refreshed.

    Use it as a context manager. Messages handed out stay valid after `close`. Not safe for use by several
    threads at once; open one reader each.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, on_corrupt: OnCorrupt = "error", map_lazily: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self.on_corrupt = on_corrupt
        self.skipped: list[Damage] = []
        """Damage that was passed over so far, with `on_corrupt="skip"`."""
        self._files = MappedFiles(late=map_lazily)
        self.lost_end: LostEnd | None = None
        """Proof that the end of the log is missing; None without one."""
        self._first_ends: list[QueueEnd] = []
        self._queues: RecoveredQueues | None = None
        self._index: KeyIndex | None = None
        self._hints: RecordHints | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        on_corrupt: OnCorrupt = "error",
        map_lazily: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Self:
        """Open a folder for reading.

        Args:
            path: The folder that holds `commitlog`, or the log of one DLedger node, `dledger-<id>`. Of that
                all entries are read, also those at its end that the group has not committed.
            on_corrupt: What to do at damage in the middle of the log: raise `CorruptRecordError`, or continue
                after it and add it to `skipped`.
            map_lazily: Map each log file when it is first read, for callers that read few of many files. A
                file that retention deletes before its first read is then missing.
            progress: Called with the physical offset (bytes) reached while the end is searched.

        Raises:
            StoreNotFoundError: the folder is not a store.
            StoreFormatError: the format of the log is not supported.
            StoreIOError: a file cannot be read.

        Cost: after a clean shutdown a few reads, if queues and checkpoint name the last record, else one pass
        over the last log file; after an unclean shutdown one pass over what the checkpoint does not cover.
        """
        checked_choice("on_corrupt", on_corrupt, get_args(OnCorrupt))
        checked_function("progress", progress)
        reader = cls(path, on_corrupt=on_corrupt, map_lazily=map_lazily)
        try:
            reader._load(progress)
        except BaseException:
            reader.close()
            raise
        return reader

    def _load(self, progress: Callable[[int], None] | None = None) -> None:
        self.layout = self._map_files()
        self.checkpoint: StoreCheckpoint | None = checkpoint.read(os.path.join(self.path, CHECKPOINT_FILE))
        whole = self._whole()
        durable_ms = self.checkpoint.log_timestamp_ms if self.checkpoint else 0
        self.stop: LogEnd = find_log_end(
            whole,
            clean=self.clean,
            durable_ms=durable_ms,
            start_offset=self._known_last_record(whole),
            progress=progress,
        )
        """Where the log ends, and why there."""
        if may_miss_end(self.layout, self.stop, self.checkpoint, self._first_ends):
            self.lost_end = find_lost_end(self.path)
        self._pin(self.stop)

    def _known_last_record(self, whole: LogView) -> int | None:
        """Physical offset of the last record after a clean shutdown, if queues and checkpoint agree on it.

        A queue alone is no proof: upstream truncates queues and log without zeroing, so removed records
        still seem valid. But none of them is the last one that was flushed.
        """
        if not self.clean:
            return None
        hints = RecordHints(self.layout, whole)
        self._first_ends, place = hints.ends, hints.last()
        if (
            place is None
            or self.checkpoint is None
            or read_message(whole, place).store_timestamp != self.checkpoint.physic_msg_timestamp
        ):
            return None
        return place

    def _pin(self, stop: LogEnd) -> None:
        self.stop = stop
        self.view = LogView(self._files.ordered(), stop.end_offset)
        if not self.clean:
            self.view.await_growth()
        self._hints = None

    def _whole(self) -> LogView:
        """All bytes of the files that may be log."""
        files = self._files.ordered()
        return entries_view(files) if self.layout.entry_files else whole_view(files)

    def _map_files(self) -> StoreFolder:
        """Map what is not mapped yet and let go of what is gone."""

        def map_all(folder: StoreFolder) -> StoreFolder:
            self._files.keep_up(folder.log_files, folder.log_file_size_bytes)
            return folder

        return read_with_retries(self.path, map_all)

    @property
    def clean(self) -> bool:
        """Whether the last shutdown was clean and no writer is running."""
        return self.layout.clean

    @property
    def min_offset(self) -> int:
        """Physical offset (bytes) of the first record."""
        return self.view.start_offset

    @property
    def max_offset(self) -> int:
        """Physical offset (bytes) after the last valid record: the pinned end."""
        return self.view.end_offset

    def refresh(self) -> bool:
        """Move the pinned end forward over what was appended since, and forget what was deleted.

        Returns:
            Whether there is anything new.

        Cost: one pass over the new bytes.
        """
        self._check_open()
        before = self.view
        self.layout = self._map_files()
        self.checkpoint = checkpoint.read(os.path.join(self.path, CHECKPOINT_FILE))
        durable_ms = self.checkpoint.log_timestamp_ms if self.checkpoint else 0
        whole = self._whole()
        if before.end_offset < whole.start_offset:
            stop = find_log_end(whole, clean=self.clean, durable_ms=durable_ms)
        else:
            stop = find_log_end(
                whole,
                clean=self.clean,
                durable_ms=durable_ms,
                start_offset=before.end_offset,
                last_store_timestamp=self.stop.last_store_timestamp,
            )
        self._pin(stop)
        self.lost_end = find_lost_end(self.path) if self.lost_end else None
        if self._queues is not None:
            self._queues.advance(self.view)
        if self._index is not None:
            self._index.advance(self.view)
        return before.end_offset != self.view.end_offset or before.start_offset != self.view.start_offset

    def queues(self) -> dict[tuple[str, int], QueueRange]:
        """Queue offsets that each queue holds, by topic and queue id, sorted.

        A queue whose messages were all deleted keeps its offsets: `min_offset == max_offset > 0`.
        """
        names = sorted(self._recovered_queues().by_name.items(), key=lambda item: item[0])
        return {name: queue.range for name, queue in names}

    def units(self, topic: str, queue_id: int, start: int | None = None, end: int | None = None) -> Units:
        """Units of one queue as recovery would leave them, queue offsets [start, end).

        Returns:
            The units, a copy; of a batch queue one unit for each record. Empty for a queue that does not
            exist. Their `raw` bytes suit `numpy.frombuffer` with the dtype `[("physical_offset", ">i8"),
            ("size_bytes", ">i4"), ("tags_code", ">i8")]`.

        Raises:
            CorruptRecordError: units are missing where damage was met (`on_corrupt="error"`).
        """
        recovered = self._recovered_queues()
        queue = recovered.by_name.get((topic, queue_id)) or QueueUnits(self.path, topic, queue_id, False)
        found = queue.array(start, end)
        if recovered.damages and queue.misses_any(found, start, end):
            for damage in recovered.damages:
                self._note(damage)
        return found

    def first_record_from(self, physical_offset: int) -> int | None:
        """Physical offset (bytes) of a record at or soon after another offset, from the files of a queue.

        Returns:
            None when no queue names one, or when no valid record is there.
        """
        self._check_open()
        if self._hints is None:
            self._hints = RecordHints(self.layout, self.view)
        return self._hints.first_from(physical_offset)

    def messages(
        self,
        *,
        order: Literal["log", "queue"] = "log",
        topics: str | Iterable[str] | None = None,
        queues: Iterable[int] | None = None,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        tags: str | None = None,
        key: str | None = None,
        limit: int | None = None,
        tail: int | None = None,
    ) -> Iterator[StoredMessage]:
        """Messages, one by one.

        Args:
            order: `log`: every record as it was appended, prepared and rollback records too. `queue`: what
                consumers can reach, by topic, queue id and queue offset.
            topics: Only this topic, or these.
            queues: Only these queue ids.
            start_offset: Start: a physical offset (bytes), or with `order="queue"` an offset of each queue.
            end_offset: End of the range, exclusive.
            since: Stored at or after this time: ms since 1970, or a datetime with a time zone.
            until: Stored before this time.
            tags: Tag expression, `A || B` or `*`.
            key: Only messages that carry this key, or have it as their unique key.
            limit: Stop after this many messages.
            tail: Only the last messages of the selection, this many.

        Raises:
            ConfigError: an argument has another type, or is out of range.
            CorruptRecordError: damage in the middle of the log was met (`on_corrupt="error"`).

        Cost: keeps one message in memory; with `tail` the last ones. `since` and `until` skip whole files,
        which requires store times to ascend from file to file.
        """
        self._check_open()
        check_reading(order, start_offset, end_offset, limit, tail)
        selection = Selection.of(topics, queues, since, until, tags, key)
        if order == "log":
            walk = LogWalk(self.view, selection, self._note)
            found = self._up_to_lost_end(
                walk.tail(start_offset, end_offset, tail)
                if tail is not None
                else walk(start_offset, end_offset),
                end_offset,
            )
        elif tail is None:
            found = self._queue_messages(selection, start_offset, end_offset)
        else:
            found = self._queue_tail(selection, start_offset, end_offset, tail)
        return islice(found, limit)

    def message_at(self, physical_offset: int) -> StoredMessage:
        """The message at a physical offset (bytes).

        Raises:
            OffsetOutOfRangeError: the offset is outside the log.
            CorruptRecordError: there is no valid record at this offset.
        """
        self._check_open()
        return read_message(self.view, physical_offset)

    def message_by_id(self, msg_id: str) -> StoredMessage:
        """The message with an offset message id: store host and physical offset in hex, as sends return it.

        Raises:
            MalformedMessageIdError: it is not a valid message id.
            OffsetOutOfRangeError: the log does not hold its offset.
            CorruptRecordError: there is no valid record with this id.
        """
        offset = decode_message_id(msg_id).physical_offset
        message = self.message_at(offset)
        if message.msg_id != msg_id.upper():
            raise CorruptRecordError(self._path_at(offset), offset, f"its id is {message.msg_id}")
        return message

    def query(
        self, topic: str, key: str, *, since: Time | None = None, until: Time | None = None, limit: int = 64
    ) -> list[StoredMessage]:
        """Return the messages of a topic that carry a key, oldest first, each once.

        Args:
            topic: The topic.
            key: One of the message's keys, or its unique key.
            since: Stored at or after this time: ms since 1970, or a datetime with a time zone.
            until: Stored before this time.
            limit: Most messages, the newest; at most 64, as upstream.
        """
        begin_ms, end_ms = stored_between(since, until)
        found = {}
        # The index knows times to the second, rounded down.
        for offset in self.query_offsets(topic, key, max(0, begin_ms - 999), until):
            try:
                message = self.message_at(offset)
            except CorruptRecordError as error:
                self._note(Damage(offset, 0, error.problem))
                continue
            timely = begin_ms <= message.store_timestamp <= end_ms
            if timely and message.topic == topic and carries_key(message, key):
                found[offset] = message
        return list(found.values())[-limit:] if limit > 0 else []

    def query_offsets(
        self, topic: str, key: str, since: Time | None = None, until: Time | None = None
    ) -> list[int]:
        """Return physical offsets (bytes) that the index has for a key, ascending: at most 64, the newest.

        The index compares hashes only, as upstream: messages of other keys may be among them, and a message
        that carries a key twice is listed twice. Times are compared in whole seconds.
        """
        self._check_open()
        if self._index is None:
            self._index = recover_index(self.layout, self.view, self.checkpoint)
        return self._index.query(self.view, topic, key, *stored_between(since, until), QUERY_MAX)

    def offset_by_time(self, topic: str, queue_id: int, time: Time, *, upper: bool = False) -> int:
        """Return the queue offset for a store time: ms since 1970, or a datetime with a time zone.

        The first message stored at or after it, or the queue's end when there is none; `upper`: the last
        stored at or before it, or the queue's first. 0 for a queue that is not there. In a batch queue an
        offset is that of a batch's first message, and times from that of the last batch on give that one;
        with `upper` a time between two batches may give either, or the queue's first.

        Answers are those of upstream 5.x for folders of any version; 4.9 would give the nearest unit.
        """
        queue = self._recovered_queues().by_name.get((topic, queue_id))
        return queue.offset_by_time(self.view, time_ms("time", time), upper=upper) if queue else 0

    def _recovered_queues(self) -> RecoveredQueues:
        self._check_open()
        if self._queues is None:
            self._queues = recover_queues(self.layout, self.view, self.checkpoint)
            if self._queues.beyond_end and self.clean and self.lost_end is None:
                self.lost_end = find_lost_end(self.path)
        return self._queues

    def note_lost_end(self) -> None:
        """If the end of the log is missing, raise, or add the loss to `skipped`.

        Raises:
            CorruptRecordError: records are gone (`on_corrupt="error"`).
        """
        if self.lost_end is not None:
            if self.on_corrupt == "error":
                raise self.lost_end.error()
            self._note(self.lost_end.damage)

    def _up_to_lost_end(self, found: Iterator[StoredMessage], end: int | None) -> Iterator[StoredMessage]:
        yield from found
        if end is None or end > self.max_offset:
            self.note_lost_end()

    def _queue_messages(
        self, selection: Selection, start: int | None, end: int | None
    ) -> Iterator[StoredMessage]:
        for queue, first, last in self._selected_queues(selection, start, end):
            for raw in queue.chunks(first, last, _CHUNK_UNITS):
                yield from selection.pick(self._read(queue, raw, selection))

    def _queue_tail(
        self, selection: Selection, start: int | None, end: int | None, tail: int
    ) -> Iterator[StoredMessage]:
        found: deque[StoredMessage] = deque()
        for queue, first, last in reversed(list(self._selected_queues(selection, start, end))):
            for raw in queue.chunks(first, last, _CHUNK_UNITS, newest_first=True):
                matching = list(selection.pick(self._read(queue, raw, selection)))
                found.extendleft(reversed(matching[max(0, len(matching) - (tail - len(found))) :]))
                if len(found) >= tail:
                    return iter(found)
        return iter(found)

    def _selected_queues(
        self, selection: Selection, start: int | None, end: int | None
    ) -> Iterator[tuple[QueueUnits, int, int]]:
        """Queues with their first and end queue offset, narrowed by store time where that ascends."""
        recovered = self._recovered_queues()
        for damage in recovered.damages:
            self._note(damage)
        self.note_lost_end()
        for (topic, queue_id), queue in sorted(recovered.by_name.items(), key=lambda item: item[0]):
            if selection.topics is not None and topic not in selection.topics:
                continue
            if selection.queues is not None and queue_id not in selection.queues:
                continue
            first = queue.min_offset if start is None else start
            last = queue.max_offset if end is None else end
            if selection.since_ms is not None and queue.has_units:
                first = max(first, queue.offset_by_time(self.view, selection.since_ms, upper=False))
            yield queue, first, last

    def _read(self, queue: QueueUnits, raw: Raw, selection: Selection) -> list[StoredMessage]:
        """The messages that units of a queue name; each must be of it, for its files may be damaged."""
        if selection.tag_codes is not None:
            raw = keep_tags(raw, selection.tag_codes)
        try:
            found = read_messages(self.view, raw)
        except (CorruptRecordError, OffsetOutOfRangeError):
            if self.on_corrupt == "error":
                raise
            found = self._read_one_by_one(raw)
        topic, queue_id = queue.topic, queue.queue_id
        strangers = [m for m in found if m.queue_id != queue_id or m.topic != topic]
        if not strangers:
            return found
        for message in strangers:
            home = f"{message.topic}/{message.queue_id}"
            problem = f"the files of queue {topic}/{queue_id} name it, but it belongs to {home}"
            self._note(Damage(message.physical_offset, 0, problem))
        return [m for m in found if m not in strangers]

    def _read_one_by_one(self, raw: Raw) -> list[StoredMessage]:
        found = []
        units = Units(bytes(raw))
        for index, unit in enumerate(units):
            try:
                found += read_messages(self.view, units[index : index + 1].raw)
            except (CorruptRecordError, OffsetOutOfRangeError) as error:
                self._note(Damage(unit.physical_offset, unit.size_bytes, str(error)))
        return found

    def _note(self, damage: Damage) -> None:
        """Raise for damage, or add it to `skipped`."""
        if self.on_corrupt == "error":
            path = self._path_at(damage.physical_offset)
            raise CorruptRecordError(path, damage.physical_offset, damage.problem)
        if damage not in self.skipped:
            self.skipped.append(damage)

    def _path_at(self, physical_offset: int) -> str:
        return self._files.path_at(physical_offset) or self.path

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(self.path)

    def close(self) -> None:
        """Close the files. Returned messages stay valid."""
        self._closed = True
        if self._queues is not None:
            self._queues.close()
        if self._index is not None:
            self._index.close()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
