"""When a flush is due: stories, and native against the model on generated histories."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyledger import errors
from pyledger._core import FlushPolicy
from tests.models import flush_policy as model
from tests.support import datadriven

TESTDATA = Path(__file__).parent / "testdata"
POLICIES = {
    "commit-log": FlushPolicy.for_commit_log,
    "consume-queue": FlushPolicy.for_consume_queue,
    "commit": FlushPolicy.for_commit,
    "bounded": FlushPolicy.bounded,
    "whatever-is-dirty": lambda: FlushPolicy("whatever is dirty", least_pages=0),
}


class Story:
    """A log with a policy that looks at it once a step."""

    def __init__(self) -> None:
        self.policy = FlushPolicy()
        self.file_size = 1 << 30
        self.wrote = self.flushed = self.now_ms = 0

    def answer(self, step: datadriven.Step) -> str:
        if step.command == "open":
            return self.open(step)
        if step.command == "write":
            if "at" in step.named:
                self.flushed = self.wrote = step.integer("at")
            self.wrote += step.integer("bytes")
        else:
            assert step.command == "wake"
        if "ms" in step.named:
            self.now_ms = step.integer("ms")
        return self.look()

    def open(self, step: datadriven.Step) -> str:
        """A first pass over a clean log, so that the thorough interval starts at 0 ms."""
        self.policy = POLICIES[step.named["policy"]]()
        self.file_size = step.integer("file", 1 << 30)
        assert self.policy.decide(0, 0, 0, self.file_size) is None
        p = self.policy
        if p.dirty_bytes_max:
            return f"{p.name}: {p.dirty_bytes_max} bytes or {p.interval_ms} ms"
        rule = f"{p.least_pages} pages, all after {p.thorough_interval_ms} ms"
        return f"{p.name}: every {p.interval_ms} ms, {rule}"

    def look(self) -> str:
        start = self.flushed - self.flushed % self.file_size
        end = min(self.wrote, start + self.file_size)
        reason = self.policy.decide(self.now_ms, self.wrote, self.flushed, self.file_size)
        facts = {
            "pages": f"{self.policy.pages_crossed(end - start, self.flushed - start)} pages crossed",
            "full": "file full",
            "bytes": f"{self.wrote - self.flushed} bytes dirty",
            "age": f"{self.wrote - self.flushed} bytes old",
            "thorough": f"thorough, {self.wrote - self.flushed} bytes dirty",
            "dirty": f"{self.wrote - self.flushed} bytes dirty",
        }
        if reason is None:
            unit = "bytes" if self.policy.dirty_bytes_max else "pages"
            quiet = "nothing dirty" if self.wrote == self.flushed else facts[unit]
            return f"wait {self.policy.wait_ms(self.now_ms)} ms: {quiet}"
        self.flushed = end
        left = f", {self.wrote - end} bytes in the next file" if self.wrote > end else ""
        return f"flush: {facts[reason]}{left}"


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("flush_policy*.txt")), ids=lambda path: path.stem)
def test_flush_policy_story(path: Path, rewrite: bool) -> None:
    datadriven.run(path, Story().answer, rewrite=rewrite)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 6000) | st.sampled_from([499, 500, 501, 9_999, 10_000, 59_999, 60_000]),
        st.integers(0, 40_000) | st.sampled_from([1, 4095, 4096, 12_288, 12_289, 16_383, 16_384]),
        st.booleans(),
    ),
    max_size=30,
)


@given(
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from([65_536, 100_000, 6_000_000]),
    STEPS,
    st.integers(0, 4096),
)
@example("commit-log", 65_536, [(0, 4095, True), (500, 12_289, True)], 0)
@example("bounded", 65_536, [(500, 16_383, True), (1, 1, True)], 0)
def test_flush_policy_any_history_equals_model(
    name: str, file_size: int, steps: list[tuple[int, int, bool]], start: int
) -> None:
    policy = POLICIES[name]()
    twin: model.PageRule | model.Bounded = model.PageRule(policy.least_pages, policy.thorough_interval_ms)
    if policy.dirty_bytes_max:
        twin = model.Bounded(policy.dirty_bytes_max, policy.interval_ms)
    now_ms = wrote = flushed = start
    assert policy.deadline_ms() is None
    for passed_ms, written_bytes, done in steps:
        now_ms += passed_ms
        wrote += written_bytes
        reason = policy.decide(now_ms, wrote, flushed, file_size)
        assert reason == twin.decide(now_ms, wrote, flushed, file_size)
        deadline_ms = policy.deadline_ms()
        assert deadline_ms is not None
        assert deadline_ms <= now_ms + policy.interval_ms
        assert policy.wait_ms(now_ms) == max(0, deadline_ms - now_ms)
        if reason and done:
            flushed = min(wrote, flushed // file_size * file_size + file_size)


@given(st.integers(0, 1 << 30), st.integers(0, 40_000))
@example(4095, 12_289)
@example(4095, 12_288)
@example(0, 16_384)
@example(0, 16_383)
def test_page_rule_is_a_difference_of_quotients(flushed: int, dirty_bytes: int) -> None:
    policy = FlushPolicy.for_commit_log()
    policy.decide(0, 0, 0, 1 << 31)
    crossed = (flushed + dirty_bytes) // 4096 - flushed // 4096
    assert FlushPolicy.pages_crossed(flushed + dirty_bytes, flushed) == crossed
    assert (policy.decide(500, flushed + dirty_bytes, flushed, 1 << 31) == "pages") == (crossed >= 4)


def test_least_pages_first_pass_is_thorough_then_every_interval() -> None:
    policy = FlushPolicy.for_commit_log()
    passes = {now_ms: policy.least_pages_at(now_ms) for now_ms in range(7, 25_000, 500)}
    assert [now_ms for now_ms, pages in passes.items() if pages == 0] == [7, 10_007, 20_007]
    assert set(passes.values()) == {0, 4}


@pytest.mark.parametrize(("option", "value"), [("interval_ms", 0), ("thorough_interval_ms", -1)])
def test_flush_policy_without_an_interval_is_rejected(option: str, value: int) -> None:
    with pytest.raises(errors.ConfigError, match=option):
        FlushPolicy("none", **{option: value})


@pytest.mark.parametrize(("wrote", "flushed", "file_size"), [(1, 2, 4096), (1, -1, 4096), (1, 1, 0)])
def test_flush_policy_of_impossible_positions_is_our_mistake(
    wrote: int, flushed: int, file_size: int
) -> None:
    with pytest.raises(errors.InvariantError):
        FlushPolicy().decide(0, wrote, flushed, file_size)
