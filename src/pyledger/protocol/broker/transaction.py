"""Transactions: a half message waits in a topic of its own until its producer commits or rolls back.

An op message notes which half messages are done, by their queue offsets. Half messages without an outcome are
checked: appended again, and their producer gets a check request; after too many checks they are discarded.

Differs: an outcome counts as soon as it is known, even before its op message is written (upstream can check
such a message and store it twice), and even if the half message was put back meanwhile. After the last check,
a producer has one more round to respond before the message is discarded.

Source: RocketMQ broker/.../TransactionalMessageBridge.java, TransactionalMessageServiceImpl.java,
EndTransactionProcessor.java.
"""

from collections.abc import Container, Iterable, Mapping
from enum import Enum, IntEnum, auto

from pyledger.config.delivery import DeliveryConfig
from pyledger.model import names
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.sys_flag import TRANSACTION_MASK, TransactionType
from pyledger.protocol.broker.delay_levels import Destination, restore
from pyledger.protocol.broker.rejection import Rejection

OP_TAG = "d"
OP_BATCH_MAX = 32
ROUND_LIMIT_MS = 60_000
HOUR_MS = 3_600_000


class TransactionEnd(IntEnum):
    """Values of `commitOrRollback` in END_TRANSACTION."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@lazy_dataclass()
class HalfMessage:
    """Fields of a stored half message that the rules check."""

    queue_offset: int
    physical_offset: int
    born_ms: int
    stored_ms: int
    properties: Mapping[str, str]

    @property
    def check_count(self) -> int:
        """Number of checks that its producer was sent."""
        return whole_number(self.properties.get(names.TRANSACTION_CHECK_TIMES, ""), 0)

    def immunity_ms(self, timeout_ms: int) -> int:
        """Time before its first check: its own property, or the broker's timeout."""
        seconds = whole_number(self.properties.get(names.CHECK_IMMUNITY_SECONDS, ""), -1)
        return timeout_ms if seconds == -1 else seconds * 1000


def whole_number(text: str, default: int) -> int:
    """Return the number in a property, or the default if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else default


def half_properties(properties: Mapping[str, str], topic: str, queue_id: int) -> dict[str, str]:
    """The properties of a message in the half topic, queue 0."""
    half = {**properties, names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
    if (unique_key := properties.get(names.UNIQUE_KEY)) is not None:
        half[names.TRANSACTION_ID] = unique_key
    return half


def half_sys_flag(sys_flag: int) -> int:
    """Return the flags of a half message, which is stored as an ordinary message of its topic."""
    return sys_flag & ~TRANSACTION_MASK


def committed_sys_flag(sys_flag: int) -> int:
    """Return the flags of the message that a commit stores."""
    return sys_flag & ~TRANSACTION_MASK | TransactionType.COMMIT


def check_end(
    half: HalfMessage | None,
    *,
    group: str,
    queue_offset: int,
    physical_offset: int,
    from_check: bool,
    now_ms: int,
    config: DeliveryConfig,
) -> Destination | Rejection:
    """Whether a commit or rollback fits the half message it names; returns where a commit is delivered.

    Args:
        half: The message at the physical offset.
        group: Producer group of the request.
        queue_offset: Queue offset of the half message in the request, units.
        physical_offset: Physical offset of the half message in the request, bytes.
        from_check: Whether it answers a check.
        now_ms: The time.
        config: Has the broker's timeout.
    """
    if half is None:
        return Rejection(ResponseCode.SYSTEM_ERROR, "find prepared transaction message failed")
    immune = names.CHECK_IMMUNITY_SECONDS in half.properties
    if immune and not from_check and now_ms - half.born_ms > half.immunity_ms(config.transaction_timeout_ms):
        problem = "the half message is past its immunity: respond to the check of its producer"
        return Rejection(ResponseCode.ILLEGAL_OPERATION, problem)
    if half.properties.get(names.PRODUCER_GROUP) != group:
        return Rejection(ResponseCode.SYSTEM_ERROR, "the producer group wrong")
    if half.queue_offset != queue_offset:
        return Rejection(ResponseCode.SYSTEM_ERROR, "the transaction state table offset wrong")
    if half.physical_offset != physical_offset:
        return Rejection(ResponseCode.SYSTEM_ERROR, "the commit log offset wrong")
    destination = restore(half.properties)
    return destination or Rejection(ResponseCode.SYSTEM_ERROR, "the half message has no destination")


class OpBuffer:
    """Half messages that are done and not yet in an op message; one buffer for each half queue."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.size_max_bytes = config.op_message_size_max_bytes
        self.interval_ms = config.op_batch_interval_ms
        self.half_offsets: dict[int, None] = {}
        self.size_bytes = 0
        self.oldest_ms = 0

    def add(self, half_offset: int, now_ms: int) -> None:
        """Add a half message by its queue offset, units."""
        if not self.half_offsets:
            self.oldest_ms = now_ms
        if half_offset not in self.half_offsets:
            self.half_offsets[half_offset] = None
            self.size_bytes += len(f"{half_offset},")

    def __contains__(self, half_offset: object) -> bool:
        return half_offset in self.half_offsets

    def due(self, now_ms: int) -> bool:
        """Whether the buffer should be stored now."""
        full = self.size_bytes > self.size_max_bytes
        return bool(self.half_offsets) and (full or now_ms - self.oldest_ms >= self.interval_ms)

    def take(self) -> bytes:
        """Return the body of an op message with all half messages of the buffer, and empty it."""
        body = "".join(f"{offset}," for offset in self.half_offsets).encode()
        self.half_offsets, self.size_bytes = {}, 0
        return body

    def deadline_ms(self) -> int | None:
        """When the buffer should be stored; None while it is empty."""
        return self.oldest_ms + self.interval_ms if self.half_offsets else None


class EndedHalfMessages:
    """Half messages that are done and whose op message cannot be read yet, by queue offset in units."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.buffer = OpBuffer(config)
        self.writing: set[int] = set()

    def __contains__(self, half_offset: object) -> bool:
        return half_offset in self.buffer or half_offset in self.writing

    def take(self) -> tuple[tuple[int, ...], bytes]:
        """Return the half messages for the next op message, and its body."""
        offsets = tuple(self.buffer.half_offsets)
        self.writing.update(offsets)
        return offsets, self.buffer.take()

    def written(self, half_offsets: Iterable[int]) -> None:
        """Forget half messages whose op message can be read."""
        self.writing.difference_update(half_offsets)

    def give_back(self, half_offsets: Iterable[int], now_ms: int) -> None:
        """Return half messages to the buffer, because their op message was not stored."""
        for offset in half_offsets:
            self.writing.discard(offset)
            self.buffer.add(offset, now_ms)


def parse_op(body: bytes) -> list[int]:
    """Return the queue offsets, units, in an op message; 4.9 writes only one, without a comma."""
    parts = (part.strip() for part in body.decode("ascii", "replace").split(","))
    return [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 19]


@lazy_dataclass()
class OpMessage:
    """Fields of an op message that a round uses."""

    queue_offset: int
    born_ms: int
    half_offsets: tuple[int, ...]


class Step(Enum):
    """What to do with a half message."""

    DONE = auto()
    """Its outcome is known: continue."""
    GIVE_UP = auto()
    """Copy it to the topic of discarded half messages, and continue."""
    PUT_BACK = auto()
    """Append it again with `put_back_properties`, and continue."""
    CHECK = auto()
    """Append it again with `checked_properties`, send its producer a check, and continue."""
    MORE_OPS = auto()
    """Pass the next op messages, if any, to `take_ops`, and call `judge` again."""
    STOP = auto()
    """The round is over."""


class CheckRound:
    """One pass over a half queue: from the first half message without an outcome to the first too young one.

    Pass the first op messages before the first half message is judged. Afterwards `half_offset` and
    `op_offset` are the offsets to commit for both queues.
    """

    def __init__(
        self,
        half_offset: int,
        op_offset: int,
        start_ms: int,
        config: DeliveryConfig,
        *,
        pending: Container[int] = (),
        put_back: dict[int, bool] | None = None,
        end_offset: int | None = None,
    ) -> None:
        """Begin a round.

        Args:
            half_offset: First half message that is not known to be done, units.
            op_offset: First op message that may name this half message or a later one, units.
            start_ms: The time.
            config: Timeouts and limits.
            pending: Half messages that are done and whose op message is not written yet.
            put_back: Half messages that were put back: by first queue offset, whether their outcome is known
                since. Pass the same mapping to every round.
            end_offset: Current end of the half queue, units: messages that this round puts back are left to
                the next one, whatever the clock does.
        """
        self.half_offset, self.first_half_offset = half_offset, half_offset
        self.end_offset = end_offset
        self.pending = pending
        self.put_back = {} if put_back is None else put_back
        self.op_offset = op_offset
        self.next_op_offset = op_offset
        self.start_ms = start_ms
        self.config = config
        self.ended: dict[int, int] = {}
        """Op message by half queue offset."""
        self.open_ops: dict[int, int] = {}
        """Number of half messages from `half_offset` on that an op message names, by its queue offset."""
        self.last_op_born_ms: int | None = None
        self.ops_exhausted = False
        self.steps = 0

    def take_ops(self, ops: Iterable[OpMessage]) -> None:
        """Add op messages from `next_op_offset` on, at most 32 at once; none means that there are no more."""
        self.ops_exhausted = True
        for op in ops:
            self.ops_exhausted = False
            self.next_op_offset = op.queue_offset + 1
            self.last_op_born_ms = op.born_ms
            self.put_back.update((offset, True) for offset in op.half_offsets if offset in self.put_back)
            ahead = [
                offset
                for offset in op.half_offsets
                if offset >= self.first_half_offset and offset not in self.ended
            ]
            self.ended.update(dict.fromkeys(ahead, op.queue_offset))
            self.open_ops[op.queue_offset] = sum(offset >= self.half_offset for offset in ahead)
        self._advance_ops()

    def noted(self) -> bool:
        """Whether the half message at `half_offset` is known to be done; then it need not be read."""
        return self.half_offset in self.ended or self.half_offset in self.pending

    def judge(self, half: HalfMessage | None, now_ms: int, *, kept_ms: int) -> Step:
        """Return what to do with the half message at `half_offset`.

        Args:
            half: The message; None: the queue ends here.
            now_ms: The time.
            kept_ms: Retention of the store: an older half message may soon be deleted.
        """
        if now_ms - self.start_ms > ROUND_LIMIT_MS:
            return Step.STOP
        if self.noted():
            return Step.DONE
        if half is None or half.stored_ms >= self.start_ms or self.half_offset == self.end_offset:
            return Step.STOP
        first = whole_number(half.properties.get(names.PREPARED_QUEUE_OFFSET, ""), -1)
        if first in self.ended or first in self.pending or self.put_back.get(first, False):
            self.put_back.pop(first, None)
            return Step.DONE
        return self._judge_open(half, first, now_ms, kept_ms)

    def _judge_open(self, half: HalfMessage, first: int, now_ms: int, kept_ms: int) -> Step:
        """Judge a half message without an outcome; `first` is its first queue offset if it was put back."""
        age_ms = now_ms - half.born_ms
        if half.check_count >= self.config.transaction_checks_max or age_ms > kept_ms:
            return Step.GIVE_UP
        if 0 <= age_ms < half.immunity_ms(self.config.transaction_timeout_ms):
            if names.CHECK_IMMUNITY_SECONDS not in half.properties:
                return Step.STOP
            self.put_back[half.queue_offset if first == -1 else first] = False
            return Step.PUT_BACK
        late_op = (
            self.last_op_born_ms is not None
            and self.last_op_born_ms - self.start_ms > self.config.transaction_timeout_ms
        )
        return Step.CHECK if self.ops_exhausted or late_op or age_ms < 0 else Step.MORE_OPS

    def go_on(self) -> None:
        """Continue with the next half message."""
        self.steps += 1
        op = self.ended.get(self.half_offset)
        self.half_offset += 1
        if op is not None and op in self.open_ops:
            self.open_ops[op] -= 1
            self._advance_ops()

    def skip_to(self, half_offset: int) -> None:
        """Skip the half messages before a queue offset, units, which are deleted."""
        while self.half_offset < half_offset:
            self.go_on()

    def describe(self) -> str:
        """Return the state of the round."""
        return f"half {self.half_offset} op {self.op_offset} next op {self.next_op_offset}"

    def _advance_ops(self) -> None:
        """Skip the first op messages while they name no half message ahead."""
        for op in list(self.open_ops):
            if self.open_ops[op] > 0:
                break
            del self.open_ops[op]
            self.op_offset = op + 1


def checked_properties(half: HalfMessage) -> dict[str, str]:
    """The properties of a half message that is put back for a check."""
    return {**half.properties, names.TRANSACTION_CHECK_TIMES: str(half.check_count + 1)}


def put_back_properties(half: HalfMessage) -> dict[str, str]:
    """The properties of a half message that is put back in its immunity: it keeps its first queue offset."""
    return {names.PREPARED_QUEUE_OFFSET: str(half.queue_offset), **half.properties}
