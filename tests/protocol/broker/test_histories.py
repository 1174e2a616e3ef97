"""Random histories with restarts: no timer message is lost, no half message forgotten or checked in vain."""

from hypothesis import example, given
from hypothesis import strategies as st

from pyledger.config.delivery import DeliveryConfig
from pyledger.protocol.broker.timer_messages import TimerQueue
from pyledger.protocol.broker.transaction import (
    CheckRound,
    HalfMessage,
    OpBuffer,
    OpMessage,
    Step,
    checked_properties,
    parse_op,
    put_back_properties,
)

CONFIG = DeliveryConfig()
DAY_MS = 86_400_000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 20)),
            st.tuples(st.just("recall"), st.integers(0, 20)),
            st.tuples(st.just("time"), st.integers(0, 10)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_timer_messages_survive_restarts(events: list[tuple[str, int]]) -> None:
    topic: list[dict[str, str]] = []
    queue = TimerQueue(CONFIG)
    delivered: set[int] = set()
    recalled: set[int] = set()
    waiting: dict[int, int] = {}
    now_ms = 0
    for what, number in events:
        if what == "put":
            topic.append({"TIMER_OUT_MS": str(now_ms + number * 1000), "UNIQ_KEY": f"k{len(topic)}"})
            waiting[len(topic) - 1] = now_ms + number * 1000
            queue.add(len(topic) - 1, topic[-1])
        elif what == "recall":
            topic.append({"TIMER_OUT_MS": str(now_ms + 1000), "TIMER_DEL_UNIQKEY": f"k{number}"})
            if waiting.pop(number, None) is not None:
                recalled.add(number)
            queue.add(len(topic) - 1, topic[-1])
        elif what == "time":
            now_ms += number * 1000
            while (one := queue.due(now_ms)) is not None:
                assert one.deliver_ms + 1000 <= now_ms
                assert one.offset not in delivered
                delivered.add(one.offset)
                queue.done()
            due = [offset for offset, deliver_ms in waiting.items() if deliver_ms + 1000 <= now_ms]
            assert set(due) <= delivered
            for offset in due:
                del waiting[offset]
        else:
            queue = TimerQueue(CONFIG, queue.progress)
            assert all(offset >= queue.next_offset for offset in waiting)
            for offset in range(queue.next_offset, len(topic)):
                queue.add(offset, topic[offset])
    assert all("TIMER_DEL_UNIQKEY" not in topic[offset] for offset in delivered)
    assert not recalled & delivered


# The end of the third half message is read while the second is too young for a check: it must be kept.
LATE_END = [
    *(("half", 0), ("time", 7), ("half", 0), ("half", 0), ("end", 0), ("op", 0)),
    *(("time", 1), ("check", 0), ("time", 40), ("check", 0)),
]


class Halves:
    """A half queue, an op queue, and a producer that answers checks or does not."""

    def __init__(self) -> None:
        self.halves: list[HalfMessage] = []
        self.origin: list[int] = []
        self.ops: list[OpMessage] = []
        self.buffer = OpBuffer(CONFIG)
        self.put_back: dict[int, bool] = {}
        self.ended: set[int] = set()
        self.given_up: set[int] = set()
        self.half_offset = self.op_offset = self.now_ms = 0

    def append(self, properties: dict[str, str], born_ms: int, origin: int | None = None) -> None:
        number = len(self.halves)
        self.halves.append(HalfMessage(number, number, born_ms, self.now_ms, properties))
        self.origin.append(number if origin is None else origin)

    def end(self, number: int) -> None:
        self.buffer.add(number, self.now_ms)
        self.ended.add(self.origin[number])

    def write_op(self) -> None:
        if body := self.buffer.take():
            self.ops.append(OpMessage(len(self.ops), self.now_ms, tuple(parse_op(body))))

    def noted(self, number: int) -> bool:
        return number in self.buffer or any(number in op.half_offsets for op in self.ops)

    def check(self) -> None:
        check_round = CheckRound(
            self.half_offset, self.op_offset, self.now_ms, CONFIG, pending=self.buffer, put_back=self.put_back
        )
        while True:
            number = check_round.half_offset
            half = self.halves[number] if number < len(self.halves) else None
            step = check_round.judge(half, self.now_ms, kept_ms=3 * DAY_MS)
            if step is Step.STOP:
                break
            if step is Step.MORE_OPS:
                check_round.take_ops(self.ops[check_round.next_op_offset :][:2])
                continue
            origin = self.origin[number]
            if step is Step.DONE:
                assert origin in self.ended
            else:
                assert half is not None
                assert step is not Step.CHECK or not self.noted(number), "its end was known"
                if step is Step.GIVE_UP:
                    self.given_up.add(origin)
                else:
                    checked = step is Step.CHECK
                    change = checked_properties if checked else put_back_properties
                    self.append(change(half), half.born_ms, origin)
            check_round.go_on()
        assert self.half_offset <= check_round.half_offset <= len(self.halves)
        assert self.op_offset <= check_round.op_offset <= len(self.ops)
        self.half_offset, self.op_offset = check_round.half_offset, check_round.op_offset


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("half"), st.sampled_from([0, 0, 0, 20, 100])),
            st.tuples(st.just("end"), st.integers(0, 10)),
            st.tuples(st.just("op"), st.just(0)),
            st.tuples(st.just("time"), st.sampled_from([1, 2, 4, 7, 40])),
            st.tuples(st.just("check"), st.just(0)),
        ),
        max_size=80,
    )
)
@example(LATE_END)
def test_every_half_message_is_ended_or_still_checked(events: list[tuple[str, int]]) -> None:
    world = Halves()
    for what, number in events:
        if what == "half":
            properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(number)} if number else {}
            world.append(properties, world.now_ms)
        elif what == "end" and number < len(world.halves):
            world.end(len(world.halves) - 1 - number)
        elif what == "op":
            world.write_op()
        elif what == "time":
            world.now_ms += number * 1000
        elif what == "check":
            world.check()
        ahead = set(world.origin[world.half_offset :])
        assert ahead | world.ended | world.given_up >= set(world.origin)
