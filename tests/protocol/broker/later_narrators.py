"""Narrators of what comes later: retries, delays, timers, transactions."""

from pyledger.model.message import MessageQueue, QueueRange
from pyledger.protocol.broker.delay_levels import DelaySchedule, Rest, restore
from pyledger.protocol.broker.message_request_modes import GroupMode, MessageRequestModeTable, RequestMode
from pyledger.protocol.broker.pop import PopKey, Popped, PoppedMessages, first_offset, pop_retry_topic
from pyledger.protocol.broker.pop_order import OrderedPops, Refused
from pyledger.protocol.broker.recall import RecallHandle, check_recall, recall_properties
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_back import SendBackRequest, SendBackRules
from pyledger.protocol.broker.timer_messages import TimerPlan, TimerProblem, TimerQueue, is_timed, plan_timer
from pyledger.protocol.broker.transaction import (
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
from pyledger.protocol.broker.transaction import Step as Judgement
from pyledger.protocol.rebalance.assignment import assign
from tests.protocol.broker.narrator import Narrator, place
from tests.protocol.broker.rule_narrators import Groups, options, rejection_text
from tests.support.datadriven import Step


def properties(step: Step) -> dict[str, str]:
    return dict(item.split("=", 1) for item in step.input.splitlines())


def written(found: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()))


class Retry(Groups):
    def back(self, step: Step) -> str:
        rules = SendBackRules(self.broker_state, self.topics, self.groups, lambda n: n - 1)
        request = SendBackRequest(**{"group": step.words[0], **options(step, SendBackRequest)})
        if (rejection := rules.check(request)) is not None:
            return rejection_text(rejection)
        returned = rules.place(
            request,
            topic=step.named.get("topic", "T"),
            reconsume_times=step.integer("times", 0),
            msg_id="ID",
            properties=properties(step),
            now_ms=self.now_ms,
        )
        if isinstance(returned, Rejection):
            return rejection_text(returned)
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
            broker_state=self.broker_state,
            topics=self.topics,
            config=self.config,
            now_ms=self.now_ms,
        )
        return (
            rejection_text(found) if isinstance(found, Rejection) else written(recall_properties(found, "g"))
        )


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
        if isinstance(found, Rejection):
            return rejection_text(found)
        self.buffer.add(number, self.now_ms)
        return f"delivered to {found.topic}/{found.queue_id}, note by {self.buffer.deadline_ms()}"

    def note(self, step: Step) -> str:
        if not self.buffer.due(self.now_ms):
            return "not yet"
        body = self.buffer.take()
        self.ops.append(OpMessage(len(self.ops), self.now_ms, tuple(parse_op(body))))
        return f"op {len(self.ops) - 1}: {body.decode()}"

    def check(self, step: Step) -> str:
        check_round = CheckRound(
            self.half_offset,
            self.op_offset,
            self.now_ms,
            self.config,
            pending=self.buffer,
            put_back=self.put_back,
        )
        check_round.take_ops(self.ops[check_round.next_op_offset :][:1])
        said = []
        while True:
            number = check_round.half_offset
            half = self.halves[number] if number < len(self.halves) else None
            judgement = check_round.judge(half, self.now_ms, kept_ms=72 * 3_600_000)
            if judgement is Judgement.STOP:
                break
            if judgement is Judgement.MORE_OPS:
                check_round.take_ops(self.ops[check_round.next_op_offset :][:1])
                continue
            if judgement in (Judgement.CHECK, Judgement.PUT_BACK):
                assert half
                change = checked_properties if judgement is Judgement.CHECK else put_back_properties
                self.append(change(half), half.born_ms)
            said.append(f"{number} {judgement.name}")
            check_round.go_on()
        self.half_offset, self.op_offset = check_round.half_offset, check_round.op_offset
        return "\n".join([*said, check_round.describe()])


class Pop(Narrator):
    """A revive topic, and the broker that reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.open = PoppedMessages()
        self.records: list[tuple[str, PopKey, int, set[int]]] = []

    def key(self, step: Step, pop_ms: int) -> PopKey:
        topic, queue_id = place(step.words[0])
        return PopKey(topic, step.words[1], queue_id, step.integer("start"), pop_ms)

    def take(self, number: int) -> None:
        what, key, due_ms, offsets = self.records[number]
        if what == "pop":
            self.open.add(Popped(key, due_ms, set(offsets)), number)
        else:
            self.open.next_offset = number + 1
            self.open.acknowledge(key, offsets)

    def pop(self, step: Step) -> str:
        offsets = {int(one) for one in step.input.split()}
        due_ms = self.now_ms + step.integer("hidden")
        self.records.append(("pop", self.key(step, self.now_ms), due_ms, offsets))
        self.take(len(self.records) - 1)
        return self.open.describe()

    def ack(self, step: Step) -> str:
        key = self.key(step, step.integer("popped"))
        offsets = {int(one) for one in step.input.split()}
        if not any(self.open.is_open(key, offset) for offset in offsets):
            return "nothing is open"
        self.records.append(("ack", key, 0, offsets))
        self.take(len(self.records) - 1)
        return self.open.describe()

    def tick(self, _step: Step) -> str:
        said = []
        while (popped := self.open.due(self.now_ms)) is not None:
            said.append(f"put back {popped.key.topic}/{popped.key.queue_id} {sorted(popped.open)}")
            self.records.append(("ack", popped.key, 0, set(popped.open)))
            self.take(len(self.records) - 1)
        return "\n".join([*said, self.open.describe()])

    def restart(self, _step: Step) -> str:
        self.open = PoppedMessages(self.open.restart_offset)
        for number in range(self.open.next_offset, len(self.records)):
            self.take(number)
        return self.open.describe()

    def retry_topic(self, step: Step) -> str:
        return pop_retry_topic(step.words[0], step.words[1])

    def first(self, step: Step) -> str:
        low, high = step.integer("min"), step.integer("max")
        young = "young" in step.words
        return str(first_offset(step.integer("mode"), low, high, first_in_memory=young))


class OrderedPop(Narrator):
    """A queue, the group that pops from it in order, and its offset."""

    def __init__(self) -> None:
        super().__init__()
        self.pops = OrderedPops()
        self.committed = 0

    def pop(self, step: Step) -> str:
        attempt = step.named.get("attempt")
        until_ms = self.pops.locked_until_ms("T", "G", 0, attempt=attempt, now_ms=self.now_ms)
        if until_ms is not None:
            return f"locked until {until_ms}"
        offsets = range(self.committed, self.committed + step.integer("count"))
        self.pops.take(
            "T",
            "G",
            0,
            offsets,
            attempt=attempt,
            invisible_ms=step.integer("hidden"),
            now_ms=self.now_ms,
        )
        return self.pops.describe()

    def ack(self, step: Step) -> str:
        found = self.pops.acknowledge(
            "T", "G", 0, int(step.words[0]), pop_ms=step.integer("popped"), committed=self.committed
        )
        if isinstance(found, Refused):
            return found.value
        self.committed = found
        return f"go on at {found}\n{self.pops.describe()}"

    def hide(self, step: Step) -> str:
        place = "T", "G", 0, int(step.words[0])
        done = self.pops.hide(*place, pop_ms=step.integer("popped"), until_ms=step.integer("until"))
        return self.pops.describe() if done else "popped again since"

    def reset(self, step: Step) -> str:
        self.committed = step.integer("offset")
        self.pops.unlock("T", "G", 0)
        return self.pops.describe()

    def clean(self, step: Step) -> str:
        groups = {"G"} - set(step.words)
        self.pops.clean(lambda _: step.integer("queues", 1), groups, self.now_ms)
        return self.pops.describe()


class Assignment(Narrator):
    """A group of clients, and the broker that shares the queues among them."""

    def __init__(self) -> None:
        super().__init__()
        self.modes = MessageRequestModeTable()

    def mode(self, step: Step) -> str:
        topic, group, mode = step.words
        rejection = self.modes.update(
            topic,
            group,
            GroupMode(RequestMode(mode), step.integer("share", 0)),
            topic_known=topic == "T",
            group_known=group == "G",
        )
        return rejection_text(rejection) if rejection else ""

    def assign(self, step: Step) -> str:
        queues = [MessageQueue("T", "b", number) for number in range(step.integer("queues"))]
        clients = [one for one in step.named.get("clients", "").split(",") if one]
        mode = self.modes.find("T", "G")
        pops = mode.mode is RequestMode.POP
        strategy = step.named.get("strategy", "AVG")
        found = assign(step.words[0], strategy, queues, clients, pops=pops, share_count=mode.share_count)
        if found is None:
            return "unknown"
        return f"{mode.mode}: " + (" ".join(f"{one.broker_name}:{one.queue_id}" for one in found) or "none")
