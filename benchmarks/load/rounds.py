"""Rounds over fresh state: how a case of the system benchmarks is run, timed and checked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_benchmark.fixture import BenchmarkFixture

S = TypeVar("S")


@dataclass(frozen=True)
class Rounds:
    """Runs one case several times.

    `extra_info` gets `per_second` (of the best round, by the clock), `per_cpu_second` (of the round that took
    the calling thread the least CPU time: it suffers less from a busy machine) and the facts of the case.
    """

    benchmark: BenchmarkFixture
    full: bool

    def run(
        self,
        prepare: Callable[[], S],
        act: Callable[[S], object],
        *,
        units: int,
        expected: object,
        finish: Callable[[S], None] | None = None,
        rounds: int = 5,
        **facts: object,
    ) -> None:
        """Time `act` on what `prepare` makes; `finish` takes it away, untimed.

        Args:
            prepare: Makes the state of one round.
            act: The work; its result is checked.
            units: Messages, rows or bytes that one round moves.
            expected: What `act` must return, each time.
            finish: Closes the state.
            rounds: Timed rounds of a full run, after one that is not timed.
            facts: For `extra_info`.
        """
        cpu_s: list[float] = []

        def timed(state: S) -> None:
            begin = time.thread_time()
            found = act(state)
            cpu_s.append(time.thread_time() - begin)
            assert found == expected

        self.benchmark.pedantic(
            timed,
            setup=lambda: ((prepare(),), {}),
            teardown=finish,
            rounds=rounds if self.full else 1,
            warmup_rounds=1 if self.full else 0,
        )
        self.note(units=units, per_cpu_second=units / max(min(cpu_s), 1e-9), **facts)
        if self.benchmark.stats:
            self.note(per_second=units / self.benchmark.stats.stats.min)

    def note(self, **facts: Any) -> None:
        """Keep facts with the result."""
        self.benchmark.extra_info.update(facts)
