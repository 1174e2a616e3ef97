"""Narrators of what comes later: retries, delays, timers, transactions."""

from pyledger.message import QueueRange
from pyledger.protocol.delivery.delay import DelaySchedule, Rest, restore
from pyledger.protocol.delivery.recall import RecallHandle, check_recall, recall_properties
from pyledger.protocol.delivery.refusal import Refusal
from pyledger.protocol.delivery.retry import SendBackRequest, SendBackRules
from pyledger.protocol.delivery.timer import TimerPlan, TimerProblem, TimerQueue, is_timed, plan_timer
from pyledger.protocol.delivery.transaction import (
    CheckRound,
    HalfMessage,
    OpBuffer,
    OpMessage,
    check_end,
    checked_properties,
    half_properties,
    parse_op,
    put_back_properties,
)
from pyledger.protocol.delivery.transaction import (
    Step as Judgement,
)
from tests.datadriven import Step
from tests.protocol.delivery.narrator import Narrator
from tests.protocol.delivery.rule_narrators import Groups, options, told


def properties(step: Step) -> dict[str, str]:
    return dict(item.split("=", 1) for item in step.input.splitlines())


def written(found: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()))


class Retry(Groups):
    def back(self, step: Step) -> str:
        rules = SendBackRules(self.standing, self.topics, self.groups, lambda n: n - 1)
        request = SendBackRequest(**{"group": step.words[0], **options(step, SendBackRequest)})
        if (refusal := rules.check(request, self.now_ms)) is not None:
            return told(refusal)
        returned = rules.place(
            request,
            topic=step.named.get("topic", "T"),
            reconsume_times=step.integer("times", 0),
            msg_id="ID",
            properties=properties(step),
            now_ms=self.now_ms,
        )
        kind = "dead letter" if returned.dead_letter else "retry"
        place = f"{returned.topic}/{returned.queue_id}"
        return f"{kind} {returned.reconsume_times} in {place}\n{written(returned.properties)}"


class Delay(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.schedule = DelaySchedule()

    def start(self, step: Step) -> str:
        ranges, offsets = {}, {}
        for item in step.input.splitlines():
            level, low, high, offset = map(int, item.split())
            ranges[level] = QueueRange(low, high)
            offsets[level] = offset
        self.schedule = DelaySchedule(offsets)
        self.schedule.start(ranges, self.now_ms)
        return f"{self.schedule.describe()}, deadline {self.schedule.deadline_ms()}"

    def look(self, step: Step) -> str:
        return "levels " + (" ".join(map(str, self.schedule.due_levels(self.now_ms))) or "none")

    def due(self, step: Step) -> str:
        return (
            "yes"
            if self.schedule.is_due(step.integer("level"), step.integer("deliver"), self.now_ms)
            else "no"
        )

    def delivered(self, step: Step) -> str:
        self.schedule.delivered(step.integer("level"), step.integer("next"), self.now_ms)
        return self.schedule.describe()

    def rest(self, step: Step) -> str:
        why = Rest[step.words[0].upper().replace("-", "_")]
        for level in range(1, 19):
            self.schedule.rest(level, why, self.now_ms)
        return f"deadline {self.schedule.deadline_ms()}"

    def restore(self, step: Step) -> str:
        found = restore(properties(step))
        return f"{found.topic}/{found.queue_id}" if found else "nowhere"


class Timer(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.queue = TimerQueue(self.config)
        self.topic: list[dict[str, str]] = []

    def plan(self, step: Step) -> str:
        found = properties(step)
        if not is_timed("T", found, step.integer("level", 0)):
            return "not timed"
        plan = plan_timer(found, self.now_ms, self.config)
        if isinstance(plan, TimerProblem):
            return plan.problem
        return f"at {plan.deliver_ms}" if isinstance(plan, TimerPlan) else "now"

    def add(self, step: Step) -> str:
        self.topic.append(properties(step))
        assert len(self.topic) == int(step.words[0]) + 1
        self.queue.add(int(step.words[0]), self.topic[-1])
        return self.queue.describe()

    def restart(self, _step: Step) -> str:
        self.queue = TimerQueue(self.config, self.queue.progress)
        for offset in range(self.queue.next_offset, len(self.topic)):
            self.queue.add(offset, self.topic[offset])
        return self.queue.describe()

    def tick(self, step: Step) -> str:
        said = []
        while (one := self.queue.due(self.now_ms)) is not None:
            said.append(f"deliver {one.offset}")
            self.queue.done()
        return "\n".join([*said, self.queue.describe()])


class Recall(Groups):
    def recall(self, step: Step) -> str:
        handle = step.named.get("handle")
        if handle is None:
            broker = step.named.get("broker", "broker-a")
            handle = RecallHandle("T", broker, step.integer("deliver"), "KEY").encode()
        found = check_recall(
            step.words[0],
            handle,
            standing=self.standing,
            topics=self.topics,
            config=self.config,
            now_ms=self.now_ms,
        )
        return told(found) if isinstance(found, Refusal) else written(recall_properties(found, "g"))


class Transaction(Narrator):
    """A half queue and an op queue, and the broker that checks."""

    def __init__(self) -> None:
        super().__init__()
        self.halves: list[HalfMessage] = []
        self.ops: list[OpMessage] = []
        self.buffer = OpBuffer(self.config)
        self.put_back: dict[int, bool] = {}
        self.half_offset = self.op_offset = 0

    def half(self, step: Step) -> str:
        self.append(half_properties({"PGROUP": "g", **properties(step)}, "T", 1))
        return written(dict(self.halves[-1].properties))

    def append(self, found: dict[str, str], born_ms: int | None = None) -> None:
        number = len(self.halves)
        born_ms = self.now_ms if born_ms is None else born_ms
        self.halves.append(HalfMessage(number, 1000 * number, born_ms, self.now_ms, found))

    def end(self, step: Step) -> str:
        number = int(step.words[0])
        found = check_end(
            self.halves[number] if number < len(self.halves) else None,
            group=step.named.get("group", "g"),
            queue_offset=step.integer("queue-offset", number),
            physical_offset=step.integer("physical-offset", 1000 * number),
            from_check="from-check" in step.words,
            now_ms=self.now_ms,
            config=self.config,
        )
        if isinstance(found, Refusal):
            return told(found)
        self.buffer.add(number, self.now_ms)
        return f"delivered to {found.topic}/{found.queue_id}, note by {self.buffer.deadline_ms()}"

    def note(self, step: Step) -> str:
        if not self.buffer.due(self.now_ms):
            return "not yet"
        body = self.buffer.take()
        self.ops.append(OpMessage(len(self.ops), self.now_ms, tuple(parse_op(body))))
        return f"op {len(self.ops) - 1}: {body.decode()}"

    def check(self, step: Step) -> str:
        turn = CheckRound(
            self.half_offset,
            self.op_offset,
            self.now_ms,
            self.config,
            pending=self.buffer,
            put_back=self.put_back,
        )
        turn.take_ops(self.ops[turn.next_op_offset :][:1])
        said = []
        while True:
            number = turn.half_offset
            half = self.halves[number] if number < len(self.halves) else None
            judgement = turn.judge(half, self.now_ms, kept_ms=72 * 3_600_000)
            if judgement is Judgement.STOP:
                break
            if judgement is Judgement.MORE_OPS:
                turn.take_ops(self.ops[turn.next_op_offset :][:1])
                continue
            if judgement in (Judgement.CHECK, Judgement.PUT_BACK):
                assert half
                change = checked_properties if judgement is Judgement.CHECK else put_back_properties
                self.append(change(half), half.born_ms)
            said.append(f"{number} {judgement.name}")
            turn.go_on()
        self.half_offset, self.op_offset = turn.half_offset, turn.op_offset
        return "\n".join([*said, turn.describe()])
