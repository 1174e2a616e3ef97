"""Results that may come later: callbacks, what follows them, and waiting for them."""

import asyncio
from typing import Any

import pytest

from pyledger.net.deferred import Deferred, completed
from tests.net.conftest import Run


def test_callbacks_are_called_in_order_and_at_once_when_it_is_done() -> None:
    result: Deferred[int] = Deferred()
    seen: list[tuple[str, int]] = []
    result.add_done_callback(lambda one: seen.append(("first", one.result())))
    result.add_done_callback(lambda one: seen.append(("second", one.result())))
    assert (result.done(), result.peek(), seen) == (False, None, [])
    result.set_result(7)
    result.add_done_callback(lambda one: seen.append(("late", one.result())))
    assert (result.done(), result.peek()) == (True, 7)
    assert seen == [("first", 7), ("second", 7), ("late", 7)]


@pytest.mark.parametrize("early", [True, False])
def test_what_follows_gets_the_value_or_the_error(early: bool) -> None:
    def failing(value: int) -> int:
        raise ValueError(value)

    source: Deferred[int] = Deferred()
    if early:
        source.set_result(3)
    doubled, failed = source.then(lambda value: value * 2), source.then(failing)
    passed_on = failed.then(lambda value: value + 1)
    if not early:
        assert [one.done() for one in (doubled, failed, passed_on)] == [False] * 3
        source.set_result(3)
    assert doubled.result() == 6
    for one in (failed, passed_on):
        assert isinstance(one.exception(), ValueError)
        with pytest.raises(ValueError, match="3"):
            one.peek()


def test_it_can_be_awaited_and_survives_a_waiter_that_is_cancelled(run: Run) -> None:
    async def main() -> None:
        result: Deferred[str] = Deferred()

        async def waiting() -> str:
            return await result

        stays, leaves = asyncio.ensure_future(waiting()), asyncio.ensure_future(waiting())
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        result.set_result("there")
        assert await stays == "there"
        assert await completed("at once") == "at once"

    run(main())


def test_a_callback_that_fails_is_reported_and_the_others_are_called(run: Run) -> None:
    async def main() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        result: Deferred[int] = Deferred()
        seen: list[int] = []
        result.add_done_callback(lambda one: seen.append(1 // one.result()))
        result.add_done_callback(lambda one: seen.append(one.result()))
        result.set_result(0)
        assert seen == [0]
        assert [type(one["exception"]) for one in reported] == [ZeroDivisionError]

    run(main())
