"""Timer wheel and permits against plain models."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.errors import RemotingTooMuchRequestError
from pyledger.net.request_limits import Permits
from pyledger.net.timers import Alarm, TimerWheel


class Clock:
    """The part of an event loop that timers use, with a time that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.alarms: list[Handle] = []
        self.wakes = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, action: Any) -> "Handle":
        self.alarms.append(Handle(when, action))
        return self.alarms[-1]

    def advance(self, to: float) -> None:
        while due := [one for one in self.alarms if not one.cancelled and one.when <= to]:
            first = min(due, key=lambda one: one.when)
            self.alarms.remove(first)
            self.now = max(self.now, first.when)
            self.wakes += 1
            first.action()
        self.now = to

    @property
    def armed(self) -> list["Handle"]:
        return [one for one in self.alarms if not one.cancelled]


class Handle:
    """One alarm of the clock."""

    def __init__(self, when: float, action: Any) -> None:
        self.when, self.action, self.cancelled = when, action, False

    def cancel(self) -> None:
        self.cancelled = True


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["arm", "cancel", "advance"]), st.integers(0, 5_000)), max_size=60))
def test_every_timer_expires_once_in_time_and_in_order(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    wheel = TimerWheel(clock)  # type: ignore[arg-type]
    expired: list[tuple[int, float]] = []
    timers: list[tuple[Alarm, float]] = []
    cancelled: set[int] = set()
    for step, value in steps:
        if step == "arm":
            number = len(timers)
            timer = Alarm(lambda n=number: expired.append((n, clock.now)))  # type: ignore[misc]
            timers.append((timer, clock.now + value / 1000))
            wheel.arm(timer, value)
        elif step == "cancel" and timers:
            number = value % len(timers)
            if number not in {n for n, _ in expired}:
                cancelled.add(number)
            timers[number][0].cancel()
        else:
            clock.advance(clock.now + value / 1000)
        assert len(clock.armed) <= 1
    clock.advance(clock.now + 10)
    assert sorted(n for n, _ in expired) == sorted(set(range(len(timers))) - cancelled)
    for number, at in expired:
        assert -1e-6 <= at - timers[number][1] <= wheel.tick_ms / 1000 + 1e-6
    assert not len(wheel)
    assert not clock.armed, "nothing is armed, so the loop sleeps"


def test_cancelled_timers_wake_the_loop_at_most_once() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)  # type: ignore[arg-type]
    for number in range(1_000):
        timer = Alarm(lambda: pytest.fail("cancelled"))
        wheel.arm(timer, 3_000 + number)
        timer.cancel()
    clock.advance(clock.now + 10)
    assert clock.wakes == 1


def test_timer_may_cancel_or_arm_others_while_it_expires() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)  # type: ignore[arg-type]
    seen: list[str] = []
    other = Alarm(lambda: seen.append("other"))
    again = Alarm(lambda: seen.append("again"))

    def first() -> None:
        seen.append("first")
        other.cancel()
        wheel.arm(again, 0)

    wheel.arm(Alarm(first), 5)
    wheel.arm(other, 5)
    clock.advance(clock.now + 1)
    assert seen == ["first", "again"]


def test_permits_go_to_waiters_in_order_and_none_is_lost() -> None:
    async def main() -> None:
        permits = Permits("some_permits", 2)
        order: list[int] = []

        async def one(number: int) -> None:
            await permits.take(10_000, "peer:1")
            order.append(number)

        assert permits.try_take()
        assert permits.try_take()
        assert not permits.try_take()
        tasks = [asyncio.ensure_future(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        with pytest.raises(RemotingTooMuchRequestError) as caught:
            await permits.take(5, "peer:1")
        assert (caught.value.limit, caught.value.setting) == (2, "some_permits")
        with pytest.raises(RemotingTooMuchRequestError):
            await permits.take(0, "peer:1")
        for _ in range(5):
            permits.give()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [0, 1, 3, 4, 5]
        assert permits.free == 0
        # Given and cancelled in one turn: the permit comes back.
        late = asyncio.ensure_future(one(9))
        await asyncio.sleep(0)
        permits.give()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert permits.free == 1
        permits.give()
        assert permits.free == 2

    asyncio.run(main())
