"""Transactions: a half message waits in a topic of its own until its producer commits or rolls back.

An op message notes which half messages are done, by their queue offsets. Half messages without an outcome are
checked: appended again, and their producer gets a check request; after too many checks they are discarded.

Differs: an end counts as soon as it is known, also before its op message is written (upstream can check such
a message and store it twice), and also when its half message was put back since. The last check is given a
round's time before the message is given up.

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
    """What `commitOrRollback` of END_TRANSACTION may be."""

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
        """How often its producer was sent a check."""
        return whole_number(self.properties.get(names.TRANSACTION_CHECK_TIMES, ""), 0)

    def immunity_ms(self, timeout_ms: int) -> int:
        """Time before its first check: its own property, or the broker's timeout."""
        seconds = whole_number(self.properties.get(names.CHECK_IMMUNITY_SECONDS, ""), -1)
        return timeout_ms if seconds == -1 else seconds * 1000


def whole_number(text: str, default: int) -> int:
    """A number in a property; the default where it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else default


def half_properties(properties: Mapping[str, str], topic: str, queue_id: int) -> dict[str, str]:
    """The properties of a message in the half topic, queue 0."""
    half = {**properties, names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
    if (unique_key := properties.get(names.UNIQUE_KEY)) is not None:
        half[names.TRANSACTION_ID] = unique_key
    return half


def half_sys_flag(sys_flag: int) -> int:
    """A half message is stored as an ordinary one of its topic."""
    return sys_flag & ~TRANSACTION_MASK


def committed_sys_flag(sys_flag: int) -> int:
    """The flags of the message that a commit stores."""
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
        queue_offset: Of the half message, units, by the request.
        physical_offset: Of the half message, bytes, by the request.
        from_check: It answers a check.
        now_ms: The time.
        config: The broker's timeout.
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
    """Half messages that are done and not yet noted; one buffer for each half queue."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.size_max_bytes = config.op_message_size_max_bytes
        self.interval_ms = config.op_batch_interval_ms
        self.half_offsets: dict[int, None] = {}
        self.size_bytes = 0
        self.oldest_ms = 0

    def add(self, half_offset: int, now_ms: int) -> None:
        """Note a half message, by its queue offset in units."""
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
        """The body of an op message with all that was noted; the buffer is empty then."""
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
        """All that is to be noted now, and the body of its op message."""
        offsets = tuple(self.buffer.half_offsets)
        self.writing.update(offsets)
        return offsets, self.buffer.take()

    def written(self, half_offsets: Iterable[int]) -> None:
        """Their op message can be read."""
        self.writing.difference_update(half_offsets)

    def give_back(self, half_offsets: Iterable[int], now_ms: int) -> None:
        """Their op message was not stored: they are to be noted again."""
        for offset in half_offsets:
            self.writing.discard(offset)
            self.buffer.add(offset, now_ms)


def parse_op(body: bytes) -> list[int]:
    """Queue offsets, units, that an op message notes; 4.9 writes one, without a comma."""
    parts = (part.strip() for part in body.decode("ascii", "replace").split(","))
    return [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 19]


@lazy_dataclass()
class OpMessage:
    """Fields of an op message that a round uses."""

    queue_offset: int
    born_ms: int
    half_offsets: tuple[int, ...]


class Step(Enum):
    """What the shell does with the half message of a round."""

    DONE = auto()
    """Its end is noted: go on."""
    GIVE_UP = auto()
    """Copy it to the topic of given-up ones, and go on."""
    PUT_BACK = auto()
    """Append it again, untouched but for `put_back_properties`, and go on."""
    CHECK = auto()
    """Append it again with `checked_properties`, send its producer a check, and continue."""
    MORE_OPS = auto()
    """Give the next op messages to `take_ops`, none if there are none, and call again."""
    STOP = auto()
    """The round is over."""


class CheckRound:
    """One pass over a half queue: from the first half message without an end to the first that is too young.

    Give it the first op messages before the first half message is judged. `half_offset` and `op_offset` are
    afterwards what the group of the system commits for both queues.
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
            op_offset: First op message that may note one ahead of it, units.
            start_ms: The time.
            config: Timeouts and limits.
            pending: Half messages that are done and whose op message is still to be written.
            put_back: What rounds remember of half messages that they put back: by first queue offset, whether
                their end was noted since. Hand the same to every round.
            end_offset: End of the half queue now, units: what the round itself puts back is for the next one,
                whatever the clock does meanwhile.
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
        """How many half messages ahead of us each op message still covers, by queue offset, in order."""
        self.last_op_born_ms: int | None = None
        self.ops_exhausted = False
        self.steps = 0

    def take_ops(self, ops: Iterable[OpMessage]) -> None:
        """Take in op messages from `next_op_offset` on, up to 32 at once; none: there are no more."""
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
        """What to do with the half message at `half_offset`.

        Args:
            half: The message; None: the queue ends here.
            now_ms: The time.
            kept_ms: How long the store keeps messages: an older half message cannot be read for long.
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
        """A half message without an end, put back under its own name or not."""
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
        """The step is done: the next half message."""
        self.steps += 1
        op = self.ended.get(self.half_offset)
        self.half_offset += 1
        if op is not None and op in self.open_ops:
            self.open_ops[op] -= 1
            self._advance_ops()

    def skip_to(self, half_offset: int) -> None:
        """The half messages before a queue offset, units, are deleted."""
        while self.half_offset < half_offset:
            self.go_on()

    def describe(self) -> str:
        """Return the state of the round."""
        return f"half {self.half_offset} op {self.op_offset} next op {self.next_op_offset}"

    def _advance_ops(self) -> None:
        """Pass the op messages at the front that cover nothing ahead."""
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
