"""How a message gets to a broker: attempt after attempt, within one limit of time.

Source: RocketMQ client/.../impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl).
"""

import asyncio
from collections.abc import Callable, Sequence

from pyledger.client.identity import now_ms
from pyledger.client.instance import ClientInstance
from pyledger.client.outgoing import Outgoing
from pyledger.client.results import STATUS_OF_CODE, SendResult, SendStatus
from pyledger.config.client import ProducerConfig
from pyledger.errors import (
    BrokerError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    SendError,
)
from pyledger.message import MessageQueue
from pyledger.protocol.client.queue_choice import FaultTable, QueueChooser
from pyledger.protocol.client.send_retry import SendMode, tries_again
from pyledger.wire.codes import RequestCode
from pyledger.wire.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from pyledger.wire.remoting import FLAG_ONEWAY, RemotingCommand

Select = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of the queues of a topic."""


class Sender:
    """Sends for one producer group."""

    def __init__(self, client: ClientInstance, group: str, config: ProducerConfig) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._choosers: dict[str, QueueChooser] = {}
        self._faults = FaultTable()
        self._fields: dict[tuple[MessageQueue, RequestCode], dict[str, str]] = {}
        """What requests to a queue have in common."""
        self._permits = asyncio.Semaphore(config.sends_in_flight_max)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that were sent to."""
        return tuple(self._choosers)

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be sent to.

        Args:
            topic: Known, or one that a send creates.
            timeout_ms: For asking a name server.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: none answered.
        """
        config = self._config
        return await self._client.routes.publish_queues(
            topic, config.template_topic, config.topic_queue_count, timeout_ms
        )

    async def send(
        self,
        out: Outgoing,
        mode: SendMode,
        queue: MessageQueue | None,
        select: Select | None,
        timeout_ms: int | None,
    ) -> SendResult:
        """Send within the limits of time and of sends under way.

        Args:
            out: What to send.
            mode: Decides what is tried again.
            queue: The queue; one attempt only.
            select: Chooses the queue; one attempt only.
            timeout_ms: For all attempts; None: the setting `send_timeout_ms`.

        Raises:
            SendError: it was not stored, or that is not known.
        """
        timeout_ms = self._config.send_timeout_ms if timeout_ms is None else timeout_ms
        out.deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(out.deadline):
                await self._permits.acquire()
        except TimeoutError:
            limit = self._config.sends_in_flight_max
            raise SendError(out.topic, 0, "", f"{limit} sends were under way for {timeout_ms} ms") from None
        try:
            return await self._send(out, mode, queue, select, timeout_ms)
        finally:
            self._permits.release()

    async def _send(
        self,
        out: Outgoing,
        mode: SendMode,
        queue: MessageQueue | None,
        select: Select | None,
        timeout_ms: int,
    ) -> SendResult:
        """Attempt after attempt."""
        chooser = self._choosers.get(out.topic)
        if chooser is None:
            chooser = self._choosers[out.topic] = QueueChooser(self._client.random.randrange)
        chosen = queue is not None or select is not None
        attempts = 1 if chosen or mode is SendMode.ONEWAY else 1 + self._config.retries
        loop = asyncio.get_running_loop()
        tried: list[str] = []
        result: SendResult | None = None
        failure: RemotingError = RemotingTimeoutError("a broker", timeout_ms)
        for _ in range(attempts):
            left_ms = int((out.deadline - loop.time()) * 1000)
            if left_ms <= 0:
                break
            try:
                queues = await self._queues(out.topic, queue, left_ms)
                target = (
                    queue
                    or (select(queues) if select else None)
                    or chooser.choose(
                        queues,
                        tried[-1] if tried else None,
                        self._faults if self._config.latency_faults else None,
                        loop.time() * 1000,
                    )
                )
                tried.append(target.broker_name)
                result = await self._attempt(out, target, mode)
            except RemotingError as error:
                failure = error
                if not tries_again(mode, error):
                    break
            else:
                if result.status is SendStatus.OK or not self._config.retry_when_not_stored_ok:
                    return result
        if result is not None:
            return result
        raise SendError(out.topic, len(tried), ", ".join(dict.fromkeys(tried)), str(failure)) from failure

    async def _queues(self, topic: str, queue: MessageQueue | None, left_ms: int) -> tuple[MessageQueue, ...]:
        if queue is not None and queue.broker_name in self._client.routes.addresses:
            return (queue,)
        return await self.queues(topic, left_ms)

    async def _attempt(self, out: Outgoing, queue: MessageQueue, mode: SendMode) -> SendResult:
        """Send once, and note how the broker did."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        failed, reachable = True, True
        try:
            address = self._client.routes.master(queue.broker_name)
            command = self._request(out, queue)
            left_ms = int((out.deadline - started) * 1000) or 1
            if mode is SendMode.ONEWAY:
                command.flag |= FLAG_ONEWAY
                await self._client.calls.tell(address, command, left_ms)
                answer = None
            else:
                answer = await self._client.calls.call(address, command, left_ms)
            failed = answer is not None and answer.code not in STATUS_OF_CODE
        except RemotingConnectError:
            reachable = False
            raise
        finally:
            if self._config.latency_faults:
                now = loop.time()
                self._faults.update(
                    queue.broker_name,
                    (now - started) * 1000,
                    now * 1000,
                    failed=failed,
                    reachable=reachable,
                )
        if answer is None:
            return SendResult(SendStatus.OK, out.unique_key, "", queue, -1)
        return result_of(out, queue, answer, address)

    def _request(self, out: Outgoing, queue: MessageQueue) -> RemotingCommand:
        if out.is_batch:
            code: RequestCode = RequestCode.SEND_BATCH_MESSAGE
        elif out.is_reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        else:
            code = RequestCode.SEND_MESSAGE_V2
        fields = self._common_fields(queue, code).copy()
        fields["f"], fields["g"], fields["i"] = str(out.sys_flag), str(now_ms()), out.properties
        if out.flag:
            fields["h"] = str(out.flag)
        if out.reconsume_times:
            fields["j"] = str(out.reconsume_times)
        if out.reconsume_times_max is not None:
            fields["l"] = str(out.reconsume_times_max)
        return RemotingCommand(code, ext_fields=fields, body=out.body)

    def _common_fields(self, queue: MessageQueue, code: RequestCode) -> dict[str, str]:
        """The header of a send to a queue, with the fields that each message has of its own at 0."""
        found = self._fields.get((queue, code))
        if found is None:
            header = SendMessageRequestHeader(
                producer_group=self._group,
                topic=queue.topic,
                default_topic=self._config.template_topic,
                default_topic_queue_nums=self._config.topic_queue_count,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=False,
                batch=code == RequestCode.SEND_BATCH_MESSAGE,
                bname=queue.broker_name,
            )
            found = self._fields[queue, code] = header.encode(code)
        return found


def result_of(out: Outgoing, queue: MessageQueue, answer: RemotingCommand, address: str) -> SendResult:
    """What a broker's answer says.

    Raises:
        BrokerError: the message is not stored.
    """
    status = STATUS_OF_CODE.get(answer.code)  # type: ignore[call-overload]
    if status is None:
        raise BrokerError(answer.code, answer.remark, address)
    header = answer.header(SendMessageResponseHeader)
    return SendResult(
        status,
        out.unique_key,
        header.msg_id,
        MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        header.queue_offset,
        header.transaction_id,
        header.recall_handle,
    )
