"""Many held requests: waking them leaves the event loop to other clients, and they leave no cycles behind."""

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest

from pyledger.config.delivery import DeliveryConfig
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.pull_request_hold import ITERATION_MS, PullRequestHold

PULLS = 1000
CONNECTION = cast("Connection", object())


class Held:
    """A table of held pulls; each that runs takes a millisecond."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ran: list[int] = []
        self.pulls = PullRequestHold(DeliveryConfig(), lambda: self.now_ms, lambda *_queue: 0)

    def run(self, number: int) -> None:
        self.now_ms += 1
        self.ran.append(number)

    def hold(self, number: int, **changes: Any) -> None:
        place: dict[str, Any] = {"topic": "T", "queue_id": 0, "offset": 0, "hold_ms": 60_000, "wanted": None}
        assert self.pulls.hold(lambda: self.run(number), CONNECTION, **place | changes)

    async def watch(self, count: int) -> list[int]:
        """How many ran in each iteration of the event loop, until `count` did."""
        counts, before = [], len(self.ran)
        while len(self.ran) < count and len(counts) <= count:
            await asyncio.sleep(0)
            counts.append(len(self.ran) - before)
            before = len(self.ran)
        assert len(self.ran) == count
        return counts


def test_woken_pulls_share_the_event_loop() -> None:
    async def main() -> None:
        held = Held()
        for number in range(PULLS):
            held.hold(number)
        held.pulls.arrived("T", 0, 1, None)
        counts = await held.watch(PULLS)
        assert held.ran == list(range(PULLS))
        assert max(counts) == ITERATION_MS
        held.pulls.close()

    asyncio.run(main())


def test_pulls_that_are_woken_meanwhile_come_after_them() -> None:
    async def main() -> None:
        held = Held()
        for number in range(100):
            held.hold(number, queue_id=number % 2)
        held.pulls.arrived("T", 0, 1, None)
        await asyncio.sleep(0)
        held.pulls.arrived("T", 1, 1, None)
        assert max(await held.watch(100)) <= ITERATION_MS
        assert held.ran == [*range(0, 100, 2), *range(1, 100, 2)]
        held.pulls.close()

    asyncio.run(main())


def test_failure_of_one_pull_leaves_the_others() -> None:
    async def main() -> None:
        held, problems = Held(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

        def fail() -> None:
            raise ValueError("no such thing")

        place: dict[str, Any] = {"topic": "T", "queue_id": 0, "offset": 0, "hold_ms": 60_000, "wanted": None}
        held.pulls.hold(fail, CONNECTION, **place)
        for number in range(20):
            held.hold(number)
        held.pulls.arrived("T", 0, 1, None)
        await held.watch(20)
        assert [type(one["exception"]) for one in problems] == [ValueError]
        held.pulls.close()

    asyncio.run(main())


def test_a_broker_that_closes_answers_all_at_once() -> None:
    async def main() -> None:
        held = Held()
        for number in range(PULLS):
            held.hold(number, queue_id=number % 2)
        held.pulls.arrived("T", 0, 1, None)
        await asyncio.sleep(0)
        held.pulls.close()
        assert sorted(held.ran) == list(range(PULLS))

    asyncio.run(main())


@pytest.mark.parametrize("end", ["arrival", "closed connection"])
def test_a_request_held_at_many_queues_is_freed_at_its_end(end: str) -> None:
    class Request:
        def __call__(self) -> None:
            """Answer."""

    async def main() -> None:
        held, request = Held(), Request()
        seen = weakref.ref(request)
        ends = {("T", queue_id): 0 for queue_id in range(4)}
        # The heap of deadlines lets go of entries by the hundred.
        for _ in range(100):
            again = Request()
            terms: dict[str, Any] = {"group": "g", "label": None, "ends": ends, "wanted": None}
            assert held.pulls.hold_any(again, CONNECTION, hold_ms=60_000, **terms)
        assert held.pulls.hold_any(request, CONNECTION, hold_ms=60_000, **terms)
        del request, again
        if end == "arrival":
            held.pulls.arrived("T", 2, 1, None)
            await asyncio.sleep(0)
        else:
            held.pulls.close_channel(CONNECTION)
        assert held.pulls.count == 0
        assert seen() is None
        held.pulls.close()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
