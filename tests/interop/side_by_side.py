"""Tests that wait most of their time, run side by side: each still has a line of its own in the report."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

AT_ONCE = 4


class Outcomes:
    """What became of some pieces of work."""

    def __init__(self, futures: Mapping[str, Future[None]]) -> None:
        self._futures = futures

    def require(self, name: str) -> None:
        """Wait for the end of one; raises what it raised, also where that skips the test."""
        self._futures[name].result()


@contextmanager
def side_by_side(work: Mapping[str, Callable[[], None]], at_once: int = AT_ONCE) -> Iterator[Outcomes]:
    """Begin with the work in its order; at the end of the block what has not begun is left."""
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="side-by-side")
    try:
        yield Outcomes({name: pool.submit(one) for name, one in work.items()})
    finally:
        pool.shutdown(cancel_futures=True)


def chosen(request: pytest.FixtureRequest, argument: str, **others: object) -> list[str]:
    """Values of an argument in the tests of this run that also have these other values."""
    found = []
    for item in request.session.items:
        values = item.callspec.params if hasattr(item, "callspec") else {}
        if argument in values and others.items() <= values.items():
            found.append(values[argument])
    return found
