"""Message trace: clients record the path of each message, in messages to a trace topic.

Off unless `ClientConfig.trace_enabled`. Each message adds a record, which is kept in memory until there are
20 of them or 5 seconds have passed. If the trace topic cannot keep up, records are dropped: tracing never
delays or fails a send or a listener.

Source: RocketMQ client/.../trace/AsyncTraceDispatcher.java, hook/SendMessageTraceHookImpl.java,
hook/ConsumeMessageTraceHookImpl.java.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyledger.client.identity import PROCESS_IDS, now_ms
from pyledger.client.instance import ClientInstance
from pyledger.client.listener import SKIPPED, Finished, ReconsumeLater
from pyledger.client.producer.message_preparation import DELAYING, MessageEncoder
from pyledger.client.producer.send_result import SendResult, SendStatus
from pyledger.client.producer.sender import Sender
from pyledger.config.client import ProducerConfig
from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.sys_flag import TransactionType
from pyledger.protocol.client.send_retry import SendMode
from pyledger.wire.record.properties import decode_properties
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.trace import BeginTrace, ConsumeEnd, EndTrace, SendTrace, TracedKind
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.native_codec import PendingSend

log = logger("client")

GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
BATCH_COUNT = 20
WAITING_MAX = 2048
DATA_CHARACTERS_MAX = 128_000
FLUSH_INTERVAL_S = 5.0
SEND_TIMEOUT_MS = 5000
NUMBERS = itertools.count(1)


class Tracer:
    """Writes the records of one producer or consumer."""

    def __init__(self, client: ClientInstance, group: str, kind: str) -> None:
        """Create a tracer that is not started yet.

        Args:
            client: Sends the records.
            group: Producer or consumer group whose messages are traced.
            kind: `PRODUCE` or `CONSUME`.
        """
        self.dropped = 0
        self.topic = client.config.trace_topic
        self._client = client
        self._group = group
        config = ProducerConfig(send_timeout_ms=SEND_TIMEOUT_MS)
        self._sender = Sender(client, f"{GROUP_PREFIX}-{group}-{kind}-{next(NUMBERS)}", config)
        self._encoder = MessageEncoder(config, PROCESS_IDS.of(client.address))
        self._records: deque[tuple[str, str, tuple[str, ...]]] = deque()
        """Topic of the traced message, record, and the keys of the record."""
        self._full = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to send; the client must be running."""
        self._encoder = MessageEncoder(ProducerConfig(), PROCESS_IDS.of(self._client.address))
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._send_for_ever())

    async def close(self) -> None:
        """Send the remaining records and stop. Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        while self._records:
            self._send_batch()
        await self._sender.settle()

    # --- what is traced

    def sent(
        self, out: PendingSend, result: SendResult, answer: RemotingCommand, address: str, begun_ms: int
    ) -> None:
        """Record a send that a broker has answered."""
        region = answer.ext_fields.get(names.MSG_REGION)
        if out.topic == self.topic or region is None or answer.ext_fields.get(names.TRACE_ON) == "false":
            return
        properties = decode_properties(out.properties)
        kind = TracedKind.NORMAL
        if out.sys_flag & TransactionType.PREPARED:
            kind = TracedKind.HALF
        if names.DELAY in properties or any(name in properties for name in DELAYING):
            kind = TracedKind.DELAYED
        keys = properties.get(names.KEYS)
        trace = SendTrace(
            time_ms=begun_ms,
            region=region,
            group=self._group,
            topic=out.topic,
            msg_id=out.unique_key,
            tags=properties.get(names.TAGS),
            keys=keys,
            store_host=address,
            body_bytes=len(out.body),
            took_ms=now_ms() - begun_ms,
            kind=kind,
            offset_msg_id=result.offset_msg_id,
            succeeded=result.status is SendStatus.OK,
        )
        self._add(out.topic, trace.encode(), found_by(out.unique_key, keys))

    def watch(
        self, messages: Sequence[ReceivedMessage], begin: Callable[[], bool], finished: Finished
    ) -> tuple[Callable[[], bool], Finished]:
        """Wrap the callbacks of a listener's call so that they record its start and end; see `Watch`."""
        wanted = [one for one in messages if one.properties.get(names.TRACE_ON) != "false"]
        if not wanted:
            return begin, finished
        request_id = PROCESS_IDS.of(self._client.address).next(now_ms())
        begun_ms = now_ms()

        def begin_traced() -> bool:
            nonlocal begun_ms
            if not begin():
                return False
            begun_ms = now_ms()
            self._add_all(wanted, lambda one: self._begun(one, request_id, begun_ms))
            return True

        def finish_traced(outcome: Any, error: BaseException | None) -> None:
            if outcome is not SKIPPED:
                took_ms = (now_ms() - begun_ms) // len(messages)
                self._add_all(wanted, lambda one: self._ended(one, request_id, took_ms, outcome, error))
            finished(outcome, error)

        return begin_traced, finish_traced

    def _begun(self, message: ReceivedMessage, request_id: str, begun_ms: int) -> str:
        return BeginTrace(
            time_ms=begun_ms,
            region=message.properties.get(names.MSG_REGION),
            group=self._group,
            request_id=request_id,
            msg_id=traced_id(message),
            reconsume_times=message.reconsume_times,
            keys=message.properties.get(names.KEYS),
        ).encode()

    def _ended(
        self,
        message: ReceivedMessage,
        request_id: str,
        took_ms: int,
        outcome: Any,
        error: BaseException | None,
    ) -> str:
        end = ConsumeEnd.SUCCESS
        if error is not None:
            end = ConsumeEnd.EXCEPTION
        elif isinstance(outcome, ReconsumeLater):
            end = ConsumeEnd.FAILED
        return EndTrace(
            request_id=request_id,
            msg_id=traced_id(message),
            took_ms=took_ms,
            succeeded=end is ConsumeEnd.SUCCESS,
            keys=message.properties.get(names.KEYS),
            end=end,
            time_ms=now_ms(),
            group=self._group,
        ).encode()

    # --- waiting records

    def _add_all(self, messages: Iterable[ReceivedMessage], make: Callable[[ReceivedMessage], str]) -> None:
        for one in messages:
            self._add(one.topic, make(one), found_by(traced_id(one), one.properties.get(names.KEYS)))

    def _add(self, topic: str, record: str, keys: tuple[str, ...]) -> None:
        """Keep a record until it is sent; thread-safe."""
        if len(self._records) >= WAITING_MAX:
            self.dropped += 1
            return
        self._records.append((topic, record, keys))
        if len(self._records) >= BATCH_COUNT and not self._full.is_set() and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._full.set)

    async def _send_for_ever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_INTERVAL_S):
                    await self._full.wait()
            self._full.clear()
            while self._records and self._sender.has_capacity:
                self._send_batch()

    def _send_batch(self) -> None:
        """Send the oldest records, with a message for each topic that was traced."""
        by_topic: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for _ in range(min(BATCH_COUNT, len(self._records))):
            topic, record, keys = self._records.popleft()
            by_topic.setdefault(topic, []).append((record, keys))
        for records in by_topic.values():
            while records:
                count, size = 0, 0
                while count < len(records) and size < DATA_CHARACTERS_MAX:
                    size += len(records[count][0])
                    count += 1
                self._send(records[:count])
                del records[:count]

    def _send(self, records: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        keys = dict.fromkeys(key for _, found in records for key in found)
        data = "".join(record for record, _ in records).encode("utf-8", "replace")
        try:
            out = self._encoder.message(Message(self.topic, data, keys=" ".join(keys)))
            self._sender.start(out, SendMode.ASYNC).add_done_callback(log_failure)
        except PyLedgerError as problem:
            event(log, logging.WARNING, "trace not sent", records=len(records), problem=problem)


def log_failure(future: asyncio.Future[SendResult]) -> None:
    """Log why records could not be sent."""
    if not future.cancelled() and (problem := future.exception()) is not None:
        event(log, logging.WARNING, "trace not sent", problem=problem)


def traced_id(message: ReceivedMessage) -> str:
    """Return the id by which a message is traced."""
    return message.unique_key or message.msg_id


def found_by(msg_id: str, keys: str | None) -> tuple[str, ...]:
    """Return the keys of a record: the id and the keys of its message."""
    return (msg_id, *(keys or "").split())
