"""Rules of producers: stories of queue choice, ids of messages, what is tried again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import (
    BrokerError,
    NoRouteError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from pyledger.model.message import MessageQueue
from pyledger.protocol.client.queue_selection import FaultStrategy, FaultTable, pause_after
from pyledger.protocol.client.send_retry import SendMode, tries_again
from pyledger.wire.remoting.native_codec import UniqueIds
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("choice_*.txt"))
MONTH_MS = 30 * 86_400_000


class Story:
    """One producer of one topic. The story contains the random numbers."""

    def __init__(self) -> None:
        self.queues: list[MessageQueue] = []
        self.faults = FaultTable()
        self.draws = [0]
        self.chooser = FaultStrategy(lambda _limit: self.draws.pop(0))
        self.now_ms = 0

    def apply(self, step: datadriven.Step) -> str:
        self.now_ms = step.integer("at", self.now_ms)
        return str(getattr(self, step.command)(step))

    def topic(self, step: datadriven.Step) -> str:
        """`topic broker=queues …`."""
        named = {name: int(count) for name, count in step.named.items() if name != "at"}
        self.queues = [MessageQueue("T", name, i) for name, count in named.items() for i in range(count)]
        return f"{len(self.queues)} queues"

    def choose(self, step: datadriven.Step) -> str:
        """`choose times=n after=broker sparing`; `draw=` is the next random number."""
        if "draw" in step.named:
            self.draws.append(step.integer("draw"))
        found = []
        for _ in range(step.integer("times", 1)):
            queue = self.chooser.choose(
                self.queues,
                step.named.get("after"),
                self.faults if "sparing" in step.words else None,
                self.now_ms,
            )
            found.append(f"{queue.broker_name}/{queue.queue_id}")
        return " ".join(found)

    def sent(self, step: datadriven.Step) -> str:
        """`sent broker took=ms`, perhaps `failed` or `unreachable`."""
        broker_name, *words = step.words
        self.faults.update(
            broker_name,
            step.integer("took"),
            self.now_ms,
            failed="failed" in words or "unreachable" in words,
            reachable="unreachable" not in words,
        )
        return self.faults.describe(self.now_ms)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_stories(path: Path, rewrite: bool) -> None:
    datadriven.run(path, Story().apply, rewrite=rewrite)


PAUSES = [(0, 0), (549, 0), (550, 2), (1799, 2), (1800, 5), (3000, 6), (5000, 10), (15_000, 30)]


@pytest.mark.parametrize(("latency_ms", "wanted_s"), PAUSES)
def test_pause_grows_with_latency(latency_ms: int, wanted_s: int) -> None:
    assert pause_after(latency_ms) == wanted_s * 1000


TROUBLES: list[tuple[RemotingError, list[SendMode]]] = [
    (RemotingConnectError("a", "x"), [SendMode.SYNC, SendMode.ASYNC]),
    (RemotingSendRequestError("a", "x"), [SendMode.SYNC, SendMode.ASYNC]),
    (RemotingTimeoutError("a", 1), [SendMode.SYNC, SendMode.ASYNC]),
    (RemotingTooMuchRequestError("a", 1, "s"), [SendMode.SYNC]),
    (NoRouteError("T"), []),
    *[(BrokerError(code, None), [SendMode.SYNC]) for code in (1, 2, 14, 16, 17, 204, 205, 1500)],
    *[(BrokerError(code, None), []) for code in (3, 13, 26, 29)],
]


@pytest.mark.parametrize(("error", "modes"), TROUBLES, ids=str)
def test_what_is_tried_again(error: RemotingError, modes: list[SendMode]) -> None:
    assert [mode for mode in SendMode if tries_again(mode, error)] == modes


def month_of(now_ms: int) -> tuple[int, int]:
    start_ms = now_ms - now_ms % MONTH_MS
    return start_ms, start_ms + MONTH_MS


def ids() -> UniqueIds:
    return UniqueIds(bytes([10, 0, 0, 5]), 0x12345, 0xCAFEBABE, month_of)


def test_id_is_upstreams_form() -> None:
    made = ids()
    assert made.next(3 * MONTH_MS + 0xABCD) == "0A0000052345CAFEBABE0000ABCD0000"
    assert made.next(3 * MONTH_MS + 0xABCE) == "0A0000052345CAFEBABE0000ABCE0001"
    # A clock that goes back a little stays at the begin of the month; a new month counts anew.
    assert made.next(3 * MONTH_MS - 5)[-12:] == "000000000002"
    assert made.next(4 * MONTH_MS + 1)[-12:] == "000000010003"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=300))
def test_ids_differ(steps: list[int]) -> None:
    made, now, found = ids(), 5 * MONTH_MS, []
    for step in steps:
        now += step
        found.append(made.next(now))
    assert len(set(found)) == len(found)
