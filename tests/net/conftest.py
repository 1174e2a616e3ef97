"""Both event loops, and peers on loopback."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pyledger.net.loop import loop_factory

Run = Callable[[Coroutine[Any, Any, Any]], Any]
LIMIT_SECONDS = 200


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine to its end on a fresh loop; no task and no transport may be left over."""
    factory = loop_factory()
    if request.param == "uvloop" and factory is asyncio.new_event_loop:
        pytest.skip("uvloop is not installed")

    def go(main: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            problems: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            async with asyncio.timeout(LIMIT_SECONDS):
                result = await main
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left over: {left}"
            assert not problems, problems
            return result

        used = factory if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=used) as runner:
            return runner.run(bounded())

    return go
