"""Sends that wait for a slave are answered with its report: in the same step where that is there already."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.frames import FrameSource
from pyledger.config.ha import HaConfig
from pyledger.net.deferred import Deferred
from pyledger.protocol.broker.broker_stats import BrokerCounts
from pyledger.protocol.ha.master import REPORT
from pyledger.servers.broker.message_puts import MessagePuts, PutOutcome
from pyledger.servers.ha.connection import HaConnection
from pyledger.servers.ha.service import HaService
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.native_codec import RequestDecoder, SendBatch
from tests.net.conftest import Run

FAR = 1 << 40


class Master:
    """A SYNC_MASTER's puts, and a slave whose reports the test writes."""

    def __init__(self, store: StoreEngine) -> None:
        self.store = store
        self.service = HaService(
            self.store, HaConfig(role="sync_master"), lambda: 0, lambda _: asyncio.sleep(0, result=True)
        )
        timers: Any = None  # nothing is put that waits for a time
        self.puts = MessagePuts(self.store, lambda *_: None, BrokerCounts(), timers, lambda: 0)
        self.puts.replication = self.service
        self.slave, own = socket.socketpair()
        own.setblocking(False)
        self.connection = self.service.connections[1] = HaConnection(self.service, own, 1, "127.0.0.1", 1)
        self._batches = self.store.send_batches(b"", (), "DefaultRegion", trace_on=True)
        self.report(0)
        self.connection.read_reports()

    def report(self, offset: int) -> None:
        self.slave.send(REPORT.pack(offset))

    def take(self, count: int, then: Callable[[PutOutcome], str]) -> tuple[SendBatch, Deferred[str]]:
        frames = RequestDecoder(1 << 24).feed(b"".join(FrameSource("T").sends(count)))
        batch = self._batches.append(frames, 0, ("127.0.0.1", 1), 10_000)
        assert batch is not None
        assert len(batch.requests) == count
        answer = self.puts.complete_batch(batch, then)
        assert isinstance(answer, Deferred)
        return batch, answer


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Master]:
    """A master whose service listens."""
    with StoreEngine.open(folder) as store:
        master = Master(store)
        await master.service.start("127.0.0.1", 0)
        with master.slave:
            yield master
            await master.service.close()


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Master], None]:
    """Has the slave report all as soon as it was sent."""

    def report_at_once(master: Master) -> None:
        push = master.connection.push

        def pushed() -> None:
            push()
            master.report(master.store.max_offset)

        monkeypatch.setattr(master.connection, "push", pushed)

    return report_at_once


def status_of(outcome: PutOutcome) -> str:
    return outcome.status


def test_many_sends_are_answered_at_once_by_a_report_that_is_there(
    run: Run, tmp_path: Path, reporting: Callable[[Master], None]
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as master:
            reporting(master)
            _, answer = master.take(64, status_of)
            assert answer.peek() == "PUT_OK"
            assert master.puts.waiting == 0
            assert not master.service.transfer.anyone_waits

    run(main())


@pytest.mark.parametrize("count", [1, 64])
def test_sends_wait_for_a_report_that_reaches_their_end(run: Run, tmp_path: Path, count: int) -> None:
    async def main() -> None:
        async with serving(tmp_path) as master:
            answers: list[str] = []
            ends = []
            for _ in range(2):
                sent, answer = master.take(count, status_of)
                assert not answer.done()
                answer.add_done_callback(lambda late: answers.append(late.result()))
                ends.append(sent.end_offset)
            assert master.puts.waiting == 2 * count
            # The others are sent when these are acknowledged.
            for reported in (ends[0], ends[1] - 1):
                master.report(reported)
                master.service.poll_reports()
                assert answers == ["PUT_OK"]
                assert master.puts.waiting == count
            master.report(ends[1])
            master.service.poll_reports()
            assert answers == ["PUT_OK"] * 2
            assert master.puts.waiting == 0

    run(main())


def test_who_is_answered_may_put_again_at_once(
    run: Run, tmp_path: Path, reporting: Callable[[Master], None]
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as master:
            answers: list[object] = []

            def again(late: Deferred[str]) -> None:
                answers.append(late.result())
                if len(answers) < 3:
                    _, answer = master.take(64, status_of)
                    assert not answer.done()  # its report is there, but reports are being processed
                    answer.add_done_callback(again)

            _, answer = master.take(64, status_of)
            assert not answer.done()
            answer.add_done_callback(again)
            master.report(master.store.max_offset)
            reporting(master)
            for number in range(3):
                assert len(answers) == number
                master.service.poll_reports()
            assert answers == ["PUT_OK"] * 3

    run(main())
