"""Rounds of rebalance: stories of consumers of one group, and the rule in one property."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import RebalanceError
from pyledger.model.message import MessageQueue
from pyledger.protocol.rebalance import planner
from pyledger.protocol.rebalance.strategies import Averagely, ConsistentHash, Strategy
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
STRATEGIES: dict[str, Strategy] = {"AVG": Averagely(), "CONSISTENT_HASH": ConsistentHash()}


class Story:
    """Consumers that hold queues of one topic, each with the time of its last pull."""

    def __init__(self) -> None:
        self.queues: list[MessageQueue] | None = None
        self.ids: list[str] | None = None
        self.held: dict[str, dict[MessageQueue, int]] = {}
        self.now_ms = 0

    def perform(self, step: datadriven.Step) -> str:
        self.now_ms = step.integer("at", self.now_ms)
        return str(getattr(self, step.command)(step))

    def topic(self, step: datadriven.Step) -> str:
        """`topic broker=queues …`; nothing when the route is not known."""
        named = {name: int(count) for name, count in step.named.items() if name != "at"}
        self.queues = [
            MessageQueue("T", name, i) for name, count in named.items() for i in range(count)
        ] or None
        return f"{len(self.queues or ())} queues"

    def group(self, step: datadriven.Step) -> str:
        self.ids = list(step.words) or None
        return f"{len(self.ids or ())} consumers"

    def pull(self, step: datadriven.Step) -> str:
        held = self.held[step.words[0]]
        for queue in held:
            if not step.words[1:] or text(queue) in step.words[1:]:
                held[queue] = self.now_ms
        return "pulled"

    def rebalance(self, step: datadriven.Step) -> str:
        """`keep=` names queues that cannot be dropped yet."""
        lines = []
        for own in step.words or self.ids or ():
            held = self.held.setdefault(own, {})
            strategy = STRATEGIES[step.named.get("strategy", "AVG")]
            wanted = planner.share(strategy, own, self.queues, self.ids)
            if wanted is None:
                lines.append(f"{own} keeps what it has: {texts(held)}")
                continue
            plan = planner.plan("T", held, wanted, self.now_ms)
            busy = step.items("keep") if "keep" in step.named else []
            for queue in plan.drop:
                if text(queue) not in busy:
                    del held[queue]
            for queue in plan.take:
                held.setdefault(queue, self.now_ms)
            done = f"drop {texts(plan.drop)} take {texts(plan.take)}" if plan else "no change"
            lines.append(f"{own}: {done}; has {texts(held)}")
        return "\n".join(lines) or "nobody"


def text(queue: MessageQueue) -> str:
    return f"{queue.broker_name}{queue.queue_id}"


def texts(queues: object) -> str:
    assert isinstance(queues, tuple | dict)
    return " ".join(map(text, queues)) or "-"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_planner_story(story: Path, rewrite: bool) -> None:
    datadriven.run(story, Story().perform, rewrite=rewrite)


QUEUES = st.lists(
    st.builds(MessageQueue, st.sampled_from(["T", "U"]), st.sampled_from("ab"), st.integers(0, 5)),
    unique=True,
)


@given(held=QUEUES, wanted=QUEUES, idle=QUEUES)
def test_plan_leads_to_what_is_wanted_and_touches_no_other_topic(
    held: list[MessageQueue], wanted: list[MessageQueue], idle: list[MessageQueue]
) -> None:
    wanted = [queue for queue in wanted if queue.topic == "T"]
    now_ms = 500_000
    times = {queue: now_ms - 120_000 - (queue in idle) for queue in held}
    plan = planner.plan("T", times, wanted, now_ms)
    after = (set(held) - set(plan.drop)) | set(plan.take)
    assert after == {queue for queue in held if queue.topic == "U"} | set(wanted)
    kept = {queue for queue in held if queue in wanted and queue not in idle}
    assert not kept & {*plan.drop, *plan.take}, "a queue that stays is not disturbed"
    assert bool(plan) == bool(plan.drop or plan.take)


def test_plan_refuses_queues_of_another_topic() -> None:
    with pytest.raises(RebalanceError, match="another topic"):
        planner.plan("T", {}, [MessageQueue("U", "a", 0)], 0)
