"""Listeners of both kinds: what they return and raise reaches the event loop, once for each call."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyledger.client.listener import SKIPPED, ListenerRunner, ReconsumeLater
from pyledger.errors import ConfigError
from tests.net.conftest import Run

TURNS = 200
LATER = ReconsumeLater(delay_level=3)


def behave(number: int) -> ReconsumeLater | None:
    if number % 3 == 0:
        raise ValueError(number)
    return LATER if number % 3 == 1 else None


async def behave_async(number: int) -> ReconsumeLater | None:
    await asyncio.sleep(0)
    return behave(number)


@pytest.fixture(params=["thread", "coroutine"])
def listener(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return behave if request.param == "thread" else behave_async


def test_every_turn_has_one_outcome(run: Run, listener: Callable[[Any], Any]) -> None:
    async def main() -> None:
        runner = ListenerRunner(listener, None, 4, "test")
        runner.start()
        outcomes: dict[int, list[tuple[Any, BaseException | None]]] = {n: [] for n in range(TURNS)}
        for number, found in outcomes.items():
            runner.run(
                [number],  # type: ignore[list-item]
                lambda number=number: number % 5 != 0,  # type: ignore[misc]
                lambda outcome, error, found=found: found.append((outcome, error)),  # type: ignore[misc]
            )
        await runner.close(10_000)
        for number, found in outcomes.items():
            [(outcome, error)] = found
            if number % 5 == 0:
                assert (outcome, error) == (SKIPPED, None)
            elif number % 3 == 0:
                assert isinstance(error, ValueError)
                assert error.args == (number,)
                assert outcome is not SKIPPED
            else:
                assert (outcome, error) == (behave(number), None)

    run(main())


def test_close_waits_for_what_runs(run: Run) -> None:
    begun, finish, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_message: object) -> None:
        begun.set()
        finish.wait(100)
        ended.set()

    async def main() -> None:
        runner = ListenerRunner(slow, None, 1, "test")
        runner.start()
        call = asyncio.ensure_future(runner.process([None]))  # type: ignore[list-item]
        await asyncio.to_thread(begun.wait, 30)
        closing = asyncio.ensure_future(runner.close(30_000))
        await asyncio.sleep(0)
        assert not closing.done()
        finish.set()
        await closing
        assert ended.is_set()
        assert await call == (None, None)

    run(main())


def test_no_more_coroutines_run_at_once_than_threads(run: Run) -> None:
    async def main() -> None:
        running = most = 0

        async def listener(_message: object) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

        runner = ListenerRunner(listener, None, 3, "test")
        runner.start()
        for number in range(20):
            runner.run([number], lambda: True, lambda _outcome, _error: None)  # type: ignore[list-item]
        await runner.close(30_000)
        assert most == 3

    run(main())


def test_one_listener_is_needed() -> None:
    for given in ((None, None), (behave, behave)):
        with pytest.raises(ConfigError, match="give one of the two"):
            ListenerRunner(*given, 1, "test")  # type: ignore[arg-type]


def test_nothing_waits_for_a_task_that_is_over(run: Run) -> None:
    """What comes right after the last call is processed too, while the loop still has that task."""

    async def main() -> None:
        async def listener(_message: object) -> None:
            return None

        runner = ListenerRunner(listener, None, 1, "test")
        runner.start()
        for _ in range(50):
            async with asyncio.timeout(5):
                assert await runner.process([None]) == (None, None)  # type: ignore[list-item]
        await runner.close(5_000)

    run(main())
