"""Answers that a journal's thread was given to send: what went in part goes on before all else."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyledger.clock import SystemClock
from pyledger.protocol.bookkeeper.bookie import BookieRules
from pyledger.servers.bookkeeper.request_processor import BookieRequestProcessor

ANSWERS, OTHER = b"answers to adds", b"another answer"


class SlowJournal:
    """A journal whose disk and whose socket take what the test says."""

    failed = False

    def __init__(self) -> None:
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.appended = self.synced = self.sent = 0
        self.given = b""

    def kick(self) -> None:
        """Nothing is written by itself."""

    def give_parcel(self, _fd: int, parcel: bytes) -> None:
        self.given = parcel

    def take_parcel(self) -> int:
        sent, self.sent = self.sent, 0
        return sent


class Wire:
    """A connection that notes what goes to its socket."""

    closed = must_secure = congested = False
    dialect = SimpleNamespace(is_version2=False)

    def __init__(self) -> None:
        self.in_work = 0
        self.before_answer: Any = None
        self.wrote = b""

    def turn_is_over(self) -> bool:
        return False

    def lend(self) -> int:
        return 0

    def write(self, frames: Iterable[bytes]) -> None:
        self.wrote += b"".join(frames)

    def answer(self, frames: Iterable[bytes], done: int) -> None:
        if self.before_answer is not None:
            self.before_answer()
        self.in_work -= done
        self.write(frames)


def test_an_answer_that_was_sent_in_part_goes_on_before_another_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = SlowJournal()
        wire: Any = Wire()

        def take_adds(*_adds: object, version2: bool) -> tuple[int, bytes, list[int]]:
            assert not version2
            journal.appended += 100
            return 1, ANSWERS, [7]

        journals = SimpleNamespace(writers=(journal,), of=lambda _ledger_id: 0)
        config = SimpleNamespace(write_cache_bytes=1 << 20)
        store: Any = SimpleNamespace(
            journals=journals, config=config, cached_bytes=0, waits=True, take_adds=take_adds
        )
        disk: Any = None
        desk = BookieRequestProcessor(store, BookieRules(store, {}), disk, SystemClock(), lambda: None)
        desk.take(wire, [b"an add"])
        assert journal.given == ANSWERS
        journal.synced, journal.sent = journal.appended, 3  # the kernel took so much, and was full
        wire.answer((OTHER,), 0)
        assert wire.wrote == ANSWERS[3:] + OTHER
        desk._rung(0)
        assert wire.in_work == 0
        assert wire.wrote == ANSWERS[3:] + OTHER, "nothing goes twice"
        desk.close()
        os.close(journal.bell)

    asyncio.run(scenario())
