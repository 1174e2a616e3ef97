"""When a store flushes log, queues and pool: text stories over real files and a clock set by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.store.messages.flush_thread import LogFlusher, QueueFlusher
from pyledger.store.messages.opening import StoreComponents, open_parts
from tests.support import datadriven

TESTDATA = Path(__file__).parent / "testdata"
RECORD_BYTES = 92
"""A record of topic `t` without a body."""
UNIT_BYTES = 20


class SetClock(SystemClock):
    """A clock that stands still between steps."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


class Part:
    """What one thread of a store flushes."""

    def __init__(
        self,
        write: Callable[[int], object],
        work: Callable[[], int],
        wrote: Callable[[], int],
        flushed: Callable[[], int],
    ) -> None:
        self.write, self.work, self.wrote, self.flushed = write, work, wrote, flushed


class Story:
    """A store without threads: a step is a write, or one round of the thread that is tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SetClock()
        self.opened: list[StoreComponents] = []

    def answer(self, step: datadriven.Step) -> str:
        if step.command == "open":
            return self.open(step.words[0], step.named)
        if step.command == "write":
            for size in step.items("bytes"):
                self.part.write(int(size))
            dirty = f"{self.part.wrote() - self.part.flushed()} bytes dirty"
            return f"{dirty}: flush now" if self.flusher.exceeds_bound() else dirty
        assert step.command == "round"
        self.clock.ms = step.integer("ms")
        before = self.part.flushed()
        pause_ms = self.part.work()
        moved, left = self.part.flushed() - before, self.part.wrote() - self.part.flushed()
        return f"{moved} bytes flushed, {left} left; next round after {pause_ms} ms"

    def open(self, kind: str, options: dict[str, str]) -> str:
        self.clock.ms = 0
        parts = open_parts(
            str(self.folder / str(len(self.opened))), None, options, create=True, truncate_at_corruption=False
        )
        self.opened.append(parts)
        log = parts.log
        appender = parts.commit_log.appender("t", 0)
        self.flusher = LogFlusher(
            parts.commit_log, parts.group, parts.config, self.clock, parts.dispatch_notifier
        )

        def put(size_bytes: int) -> None:
            appender.put(bytes(size_bytes - RECORD_BYTES))

        if kind == "log":
            self.part = Part(
                put, self.flusher.work_by_policy, lambda: log.wrote_where, lambda: log.flushed_where
            )
        elif kind == "pool":
            self.part = Part(put, self.flusher.commit, lambda: log.wrote_where, lambda: log.committed_where)
        else:
            queue = parts.queues.open_queue("t", 0, False)
            queues = QueueFlusher(
                parts.path,
                parts.queues,
                None,
                parts.dispatcher,
                self.flusher,
                parts.checkpoint,
                parts.config,
                self.clock,
            )

            def put_units(size_bytes: int) -> None:
                for _ in range(size_bytes // UNIT_BYTES):
                    number = queue.max_offset
                    queue.put(number * RECORD_BYTES, RECORD_BYTES, 0, number)

            self.part = Part(
                put_units, queues.work, lambda: queue.max_offset * UNIT_BYTES, lambda: queue.flushed_where
            )
        return "nothing dirty"

    def close(self) -> None:
        for parts in self.opened:
            parts.queues.close()
            parts.log.close()
            parts.lock.release()


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("flush_*.txt")), ids=lambda path: path.stem)
def test_flush_story(path: Path, tmp_path: Path, rewrite: bool) -> None:
    story = Story(tmp_path)
    try:
        datadriven.run(path, story.answer, rewrite=rewrite)
    finally:
        story.close()
