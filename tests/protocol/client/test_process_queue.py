"""The messages of one queue within a consumer: stories, and a model in a few obvious lines."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyledger.protocol.client.process_queue import NOTHING_CONSUMED, FlowLimits, ProcessQueue
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("queue_*.txt"))
MIB = 1 << 20


@dataclass(eq=False)
class Stored:
    """The attributes of a message that a process queue reads."""

    queue_offset: int
    stored_body: bytes = b"x"

    @property
    def body_length(self) -> int:
        return len(self.stored_body)


class Story:
    """One process queue; `at=` sets the time in ms."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.queue: ProcessQueue[Stored] = ProcessQueue(0)
        self.limits = FlowLimits()
        self.known: dict[int, Stored] = {}

    def apply(self, step: datadriven.Step) -> str:
        self.now_ms = step.integer("at", self.now_ms)
        return str(getattr(self, step.command.replace("-", "_"))(step)) or "ok"

    def limit(self, step: datadriven.Step) -> str:
        span = step.named.get("span", "2000")
        self.limits = FlowLimits(
            step.integer("count", 1000), step.integer("mib", 100), None if span == "none" else int(span)
        )
        return "ok"

    def put(self, step: datadriven.Step) -> str:
        """`put 0..31` or `put 3 5`, each with a body of `bytes=`."""
        found = [
            Stored(offset, bytes(step.integer("bytes", 1))) for word in step.words for offset in offsets(word)
        ]
        self.known |= {one.queue_offset: one for one in found}
        self.queue.put(found)
        return self.state()

    def remove(self, step: datadriven.Step) -> str:
        offset = self.queue.remove(self.named(step))
        return "nothing was here" if offset == NOTHING_CONSUMED else f"go on at {offset}"

    def take(self, step: datadriven.Step) -> str:
        return f"takes {ranges([one.queue_offset for one in self.queue.take(int(step.words[0]))])}"

    def commit(self, _step: datadriven.Step) -> str:
        offset = self.queue.commit()
        return "nothing was taken" if offset == NOTHING_CONSUMED else f"go on at {offset}"

    def put_back(self, _step: datadriven.Step) -> str:
        self.queue.put_back()
        return self.state()

    def lock(self, _step: datadriven.Step) -> str:
        self.queue.last_lock_ms = self.now_ms
        return self.locked(_step)

    def lose_lock(self, _step: datadriven.Step) -> str:
        self.queue.last_lock_ms = None
        return self.locked(_step)

    def locked(self, _step: datadriven.Step) -> str:
        return "locked" if self.queue.is_locked(self.now_ms) else "not locked"

    def clear(self, _step: datadriven.Step) -> str:
        self.queue.clear()
        return self.state()

    def state(self) -> str:
        here = ranges([one.queue_offset for one in self.queue.messages])
        limit = self.queue.limit_reached(self.limits)
        pulls = f"no pull for its {limit}" if limit else "pulls"
        return f"{here}; {len(self.queue)} here; span {self.queue.span}; {pulls}"

    def named(self, step: datadriven.Step) -> list[Stored]:
        return [self.known.get(offset, Stored(offset)) for word in step.words for offset in offsets(word)]


def offsets(word: str) -> range:
    first, _, last = word.partition("..")
    return range(int(first), int(last or first) + 1)


def ranges(numbers: list[int]) -> str:
    """`0..31 40`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return " ".join(f"{p[0]}..{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts) or "nothing"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, rewrite: bool) -> None:
    datadriven.run(story, Story().apply, rewrite=rewrite)


class Histories(RuleBasedStateMachine):
    """Concurrent consumption: pulled in order, finished in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: ProcessQueue[Stored] = ProcessQueue(0)
        self.here: dict[int, Stored] = {}
        self.pulled: set[int] = set()
        self.next_offset = 0

    @rule(gaps=st.lists(st.integers(0, 40), min_size=1, max_size=8), size=st.sampled_from([1, MIB]))
    def pull(self, gaps: list[int], size: int) -> None:
        """A filter leaves gaps."""
        found = []
        for gap in gaps:
            found.append(Stored(self.next_offset + gap, bytes(size)))
            self.next_offset += gap + 1
        self.queue.put(found)
        self.here |= {one.queue_offset: one for one in found}
        self.pulled |= {one.queue_offset for one in found}

    @rule(data=st.data())
    def pull_again(self, data: st.DataObject) -> None:
        """What is here is not taken twice; what was here before comes back where it was."""
        if self.pulled:
            offset = data.draw(st.sampled_from(sorted(self.pulled)))
            again = self.here.get(offset) or Stored(offset)
            self.queue.put([again])
            self.here[offset] = again

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        done = data.draw(st.lists(st.sampled_from(sorted(self.here)), min_size=1, unique=True))
        messages = [self.here.pop(offset) for offset in done]
        expected = min(self.here, default=max(self.pulled) + 1)
        assert self.queue.remove(messages) == expected

    @rule(offset=st.integers(0, 1000))
    def finish_unknown(self, offset: int) -> None:
        """A message that was given back meanwhile changes nothing."""
        if offset not in self.here:
            commit = self.queue.remove([Stored(offset)])
            assert commit == (min(self.here) if self.here else NOTHING_CONSUMED)

    @invariant()
    def agrees(self) -> None:
        assert [one.queue_offset for one in self.queue.messages] == sorted(self.here)
        assert len(self.queue) == len(self.here)
        assert self.queue.cached_bytes == sum(len(one.stored_body) for one in self.here.values())
        assert self.queue.min_offset == min(self.here, default=None)
        if self.here:
            assert self.queue.span == max(self.pulled) - min(self.here)


TestHistories = Histories.TestCase


@given(st.lists(st.tuples(st.integers(1, 7), st.booleans()), max_size=30), st.integers(0, 40))
def test_orderly_consumption_skips_no_message(calls: list[tuple[int, bool]], count: int) -> None:
    """Each call takes some messages, and succeeds or fails; the commits are in order and without gaps."""
    queue: ProcessQueue[Stored] = ProcessQueue(0)
    queue.put([Stored(offset) for offset in range(count)])
    done: list[int] = []
    for wanted, succeeds in calls:
        taken = [one.queue_offset for one in queue.take(wanted)]
        assert taken == list(range(len(done), min(len(done) + wanted, count)))
        if succeeds:
            done += taken
            assert queue.commit() == (len(done) if taken else NOTHING_CONSUMED)
        else:
            queue.put_back()
    assert [one.queue_offset for one in queue.messages] == list(range(len(done), count))
    assert queue.cached_bytes == count - len(done)
