"""Sends messages to brokers, with retries within one time limit.

At most `sends_in_flight_max` sends of a producer are in flight; more wait, and their time limit starts when
they stop waiting. The first attempt of a plain send needs no task: its request is written immediately to an
open connection, and `finished` gets the response. All other sends, and every retry, run in a task.

Source: RocketMQ client/.../impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from pyledger.client.identity import now_ms
from pyledger.client.instance import ClientInstance
from pyledger.client.producer.send_result import STATUS_OF_CODE, SendResult, SendStatus, given_up, result_of
from pyledger.config.client import ProducerConfig
from pyledger.config.fields import checked_function, checked_type, checked_whole
from pyledger.errors import (
    IllegalMessageError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
    SendError,
)
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import MASTER_ID
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.client.queue_selection import FaultStrategy, FaultTable
from pyledger.protocol.client.send_retry import SendMode, tries_again
from pyledger.wire.remoting.command import FLAG_ONEWAY, RemotingCommand
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader
from pyledger.wire.remoting.native_codec import PendingSend, SendHead

Select = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of the queues of a topic."""
Traced = Callable[[PendingSend, SendResult, RemotingCommand, str, int], None]
"""Called with a message, its result, the response, the broker's address and the send time (ms since 1970)."""

COPIED_BODY_BYTES_MAX = 32 << 10
"""A body up to this size is copied after its head; a larger one is a separate buffer."""
OWN_FIELDS = ("f", "g", "h", "i")
"""Letters of the fields that differ from message to message."""


class PublishRoute:
    """Address, connection and encoded heads of plain sends to one queue, until its route changes."""

    __slots__ = ("address", "connection", "heads", "queue")

    def __init__(self, queue: MessageQueue, address: str, heads: tuple[SendHead, SendHead]) -> None:
        """Create a route without a connection; `heads` are those of single messages and of batches."""
        self.queue = queue
        self.address = address
        self.heads = heads
        self.connection: Connection | None = None


class Sender:
    """Sends the messages of one producer group."""

    def __init__(self, client: ClientInstance, group: str, config: ProducerConfig) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._choosers: dict[str, FaultStrategy] = {}
        self._faults = FaultTable()
        self._fields: dict[tuple[MessageQueue, RequestCode], dict[str, str]] = {}
        """The header fields that all requests to a queue share."""
        self._publish_routes: dict[MessageQueue, PublishRoute] = {}
        self._topic_publish_routes: dict[str, tuple[list[PublishRoute], FaultStrategy]] = {}
        """By topic: the routes of its queues, in their order, and the strategy that chooses one."""
        self._routes_version = -1
        self._waiting: deque[PendingSend] = deque()
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []
        """Callers that wait until at most a given number of sends are in flight."""
        # Signing needs all fields, and latency faults record each attempt.
        self._is_plain = not client.config.access_key and not config.latency_faults
        self.failed = 0
        """Sends that failed."""
        self.cancelled = 0
        """Sends that were cancelled because the event loop ended."""
        self.traced: Traced | None = None
        """Called with each response; set before the first send."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics to which messages were sent."""
        return tuple(self._choosers)

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be sent to.

        Args:
            topic: An existing topic, or one that a send creates.
            timeout_ms: Limit of a request to a name server.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: no name server responded.
        """
        config = self._config
        return await self._client.routes.publish_queues(
            topic, config.template_topic, config.topic_queue_count, timeout_ms
        )

    def start(
        self,
        out: PendingSend,
        mode: SendMode,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: int | None = None,
        *,
        wait: bool = True,
    ) -> "asyncio.Future[SendResult]":
        """Send as soon as fewer than `sends_in_flight_max` sends are in flight.

        Args:
            out: What to send.
            mode: Decides which errors are retried.
            queue: The queue; one attempt only.
            select: Chooses the queue; one attempt only.
            timeout_ms: Limit of all attempts together, without the wait; None: the setting `send_timeout_ms`.
            wait: Wait while too many sends are in flight; False: raise.

        Returns:
            A future with the result, or `SendError`: it was not stored, or its result is not known.

        Raises:
            RemotingTooMuchRequestError: too many sends are in flight, and `wait` is False.
            ConfigError: `timeout_ms` is not a whole number.
            IllegalMessageError: `queue` belongs to another topic.
        """
        out.mode, out.queue, out.select, out.sender = mode, queue, select, self
        out.timeout_ms = self._config.send_timeout_ms if timeout_ms is None else timeout_ms
        if timeout_ms is not None:
            checked_whole("timeout_ms", timeout_ms)
        if select is not None:
            checked_function("select", select)
        if queue is not None:
            checked_type("queue", queue, MessageQueue)
            if queue.topic != out.topic:
                raise IllegalMessageError(f"a message for {out.topic} cannot go to a queue of {queue.topic}")
        loop = asyncio.get_running_loop()
        future = out.future = loop.create_future()
        if self._in_flight < self._config.sends_in_flight_max:
            self._begin(out, loop)
        elif wait:
            self._waiting.append(out)
        else:
            limit = self._config.sends_in_flight_max
            raise RemotingTooMuchRequestError(out.topic, limit, "sends_in_flight_max", "sends")
        return future

    @property
    def has_capacity(self) -> bool:
        """Whether a send would start immediately."""
        return self._in_flight < self._config.sends_in_flight_max

    @property
    def pending(self) -> int:
        """Sends that are in flight or waiting."""
        return self._in_flight + len(self._waiting)

    async def wait_for_capacity(self) -> None:
        """Wait until at most half of `sends_in_flight_max` sends are in flight or waiting."""
        await self._until(self._config.sends_in_flight_max // 2)

    async def settle(self) -> None:
        """Wait until no send is in flight or waiting."""
        await self._until(0)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until(self, count: int) -> None:
        """Wait until at most `count` sends are in flight or waiting."""
        while self.pending > count:
            fewer = asyncio.get_running_loop().create_future()
            self._watchers.append((count, fewer))
            await fewer

    # --- start and end of a send

    def _begin(self, out: PendingSend, loop: asyncio.AbstractEventLoop) -> None:
        """Start a send and its time limit."""
        self._in_flight += 1
        out.deadline = loop.time() + out.timeout_ms / 1000
        out.tried = []
        try:
            started = self._is_plain and self.traced is None and self._start_at_once(out)
        except Exception as error:  # noqa: BLE001 - from the user's selector; the future gets it
            loop.call_soon(self._end, out, None, error)
            return
        if not started:
            self._go_on(out, loop)

    def _end(self, out: PendingSend, result: SendResult | None, error: BaseException | None) -> None:
        """Complete a send and start waiting ones."""
        self._in_flight -= 1
        future = out.future
        if not future.done():
            if error is None:
                future.set_result(result)
            elif isinstance(error, asyncio.CancelledError):
                self.cancelled += 1
                future.cancel()
            else:
                self.failed += 1
                future.set_exception(error)
        waiting = self._waiting
        while waiting and self._in_flight < self._config.sends_in_flight_max:
            following = waiting.popleft()
            if not following.future.done():
                self._begin(following, asyncio.get_running_loop())
        if self._watchers:
            self._wake()

    def _wake(self) -> None:
        count = self.pending
        watchers, self._watchers = self._watchers, []
        for wanted, fewer in watchers:
            if count > wanted:
                self._watchers.append((wanted, fewer))
            elif not fewer.done():
                fewer.set_result(None)

    # --- the first attempt, without a task

    def _start_at_once(self, out: PendingSend) -> bool:
        """Write the request now; return False if the send needs a task."""
        if out.mode is SendMode.ONEWAY or out.reconsume_times or out.is_reply:
            return False
        if out.reconsume_times_max is not None:
            return False
        route = self._route_of(out)
        if route is None:
            return False
        out.target = route.queue
        connection = route.connection
        if connection is None or not connection.writable:
            connection = route.connection = self._client.calls.remoting.ready(route.address)
            if connection is None:
                return False
        opaque = connection.endpoint.next_opaque()
        body = out.body
        is_small = len(body) <= COPIED_BODY_BYTES_MAX
        frame = route.heads[out.is_batch].encode(out, opaque, now_ms(), is_small)
        out.tried.append(route.queue.broker_name)
        connection.start(out, opaque, (frame,) if is_small else (frame, body), out.timeout_ms)
        return True

    def _route_of(self, out: PendingSend) -> PublishRoute | None:
        """Return the route to the queue of a send; None if it must be fetched first."""
        routes = self._client.routes
        if routes.version != self._routes_version:
            self._publish_routes.clear()
            self._topic_publish_routes.clear()
            self._routes_version = routes.version
        topic = out.topic
        if out.queue is None and out.select is None:
            known = self._topic_publish_routes.get(topic)
            if known is None:
                found = [self._publish_route(queue) for queue in routes.writable_queues(topic)]
                usable = [route for route in found if route is not None]
                known = self._topic_publish_routes[topic] = usable, self._chooser(topic)
            usable, chooser = known
            return usable[chooser.step(len(usable))] if usable else None
        if out.queue is None:
            queues = routes.writable_queues(topic)
            if not queues:
                return None
            out.queue = out.select(queues)
        return self._publish_route(out.queue)

    def _publish_route(self, queue: MessageQueue) -> PublishRoute | None:
        route = self._publish_routes.get(queue)
        if route is None:
            address = self._client.routes.addresses.get(queue.broker_name, {}).get(MASTER_ID)
            if address is None:
                return None
            heads = (self._head(queue, is_batch=False), self._head(queue, is_batch=True))
            route = self._publish_routes[queue] = PublishRoute(queue, address, heads)
        return route

    def finished(self, out: PendingSend, outcome: RemotingCommand | RemotingError | None) -> None:
        """Handle the end of the first attempt; None: `out.result` was decoded from the response."""
        if outcome is None:
            result: SendResult = out.result
        else:
            try:
                if isinstance(outcome, RemotingError):
                    raise outcome
                if outcome.code == ResponseCode.GO_AWAY:
                    self._go_away(out)
                    return
                address = self._client.routes.master(out.target.broker_name)
                result = result_of(out, out.target, outcome, address)
            except RemotingError as error:
                self._failed(out, error)
                return
            except SendError as error:
                self._end(out, None, error)
                return
        if result.status is SendStatus.OK or not self._config.retry_when_not_stored_ok:
            self._end(out, result, None)
            return
        out.result = result
        self._go_on(out, asyncio.get_running_loop())

    def _failed(self, out: PendingSend, error: RemotingError) -> None:
        """Handle a failed first attempt: retry in a task if a retry may succeed."""
        self._note_failure(out, error)
        loop = asyncio.get_running_loop()
        if (
            len(out.tried) < self._attempts(out)
            and tries_again(out.mode, error)
            and loop.time() < out.deadline
        ):
            self._go_on(out, loop, error)
        else:
            self._end(out, None, given_up(out, error))

    def _go_away(self, out: PendingSend) -> None:
        """Repeat the attempt on a new connection: the broker is shutting down."""
        address = self._client.routes.master(out.target.broker_name)
        self._client.calls.remoting.retire(address)
        out.tried.pop()
        self._go_on(out, asyncio.get_running_loop())

    # --- all attempts, in a task

    def _go_on(
        self, out: PendingSend, loop: asyncio.AbstractEventLoop, failure: RemotingError | None = None
    ) -> None:
        task = loop.create_task(self._run(out, failure))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, out: PendingSend, failure: RemotingError | None) -> None:
        result, error = None, None
        try:
            result = await self._send(out, failure)
        except BaseException as raised:  # noqa: BLE001 - the future gets it
            error = raised
        self._end(out, result, error)

    def _note_failure(self, out: PendingSend, error: RemotingError) -> None:
        if isinstance(error, RemotingConnectError):
            self._client.routes.doubt(out.topic)

    def _attempts(self, out: PendingSend) -> int:
        chosen = out.queue is not None or out.select is not None
        return 1 if chosen or out.mode is SendMode.ONEWAY else 1 + self._config.retries

    async def _send(self, out: PendingSend, failure: RemotingError | None) -> SendResult:
        """Send with retries."""
        chooser = self._chooser(out.topic)
        loop = asyncio.get_running_loop()
        result: SendResult | None = out.result
        failure = failure or RemotingTimeoutError("a broker", out.timeout_ms)
        for _ in range(len(out.tried), self._attempts(out)):
            left_ms = int((out.deadline - loop.time()) * 1000)
            if left_ms <= 0:
                break
            try:
                queues = await self._queues(out.topic, out.queue, left_ms)
                target = (
                    out.queue
                    or (out.select(queues) if out.select else None)
                    or self._first_target(out, queues)
                    or chooser.choose(
                        queues,
                        out.tried[-1] if out.tried else None,
                        self._faults if self._config.latency_faults else None,
                        loop.time() * 1000,
                    )
                )
                out.tried.append(target.broker_name)
                result = await self._attempt(out, target, out.mode)
            except RemotingError as error:
                failure = error
                self._note_failure(out, error)
                if not tries_again(out.mode, error):
                    break
            else:
                if result.status is SendStatus.OK or not self._config.retry_when_not_stored_ok:
                    return result
        if result is not None:
            return result
        raise given_up(out, failure)

    def _first_target(self, out: PendingSend, queues: Sequence[MessageQueue]) -> MessageQueue | None:
        """Return the queue chosen before there was a connection, so that round robin skips no queue."""
        return out.target if not out.tried and out.target in queues else None

    def _chooser(self, topic: str) -> FaultStrategy:
        found = self._choosers.get(topic)
        if found is None:
            found = self._choosers[topic] = FaultStrategy(self._client.random.randrange)
        return found

    async def _queues(self, topic: str, queue: MessageQueue | None, left_ms: int) -> tuple[MessageQueue, ...]:
        if queue is not None and queue.broker_name in self._client.routes.addresses:
            return (queue,)
        return await self.queues(topic, left_ms)

    async def _attempt(self, out: PendingSend, queue: MessageQueue, mode: SendMode) -> SendResult:
        """Send once; record latency and failure of the broker."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        failed, reachable, begun_ms = True, True, now_ms()
        try:
            address = self._client.routes.master(queue.broker_name)
            command = self._request(out, queue)
            left_ms = max(1, int((out.deadline - started) * 1000))
            if mode is SendMode.ONEWAY:
                command.flag |= FLAG_ONEWAY
                await self._client.calls.call_oneway(address, command, left_ms)
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
        result = result_of(out, queue, answer, address)
        if self.traced is not None:
            self.traced(out, result, answer, address, begun_ms)
        return result

    def _request(self, out: PendingSend, queue: MessageQueue) -> RemotingCommand:
        if out.is_batch:
            code: RequestCode = RequestCode.SEND_BATCH_MESSAGE
        elif out.is_reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        else:
            code = RequestCode.SEND_MESSAGE_V2
        fields = self._common_fields(queue, code).copy()
        fields["f"], fields["g"], fields["i"] = str(out.sys_flag), str(now_ms()), out.properties.decode()
        if out.flag:
            fields["h"] = str(out.flag)
        if out.reconsume_times:
            fields["j"] = str(out.reconsume_times)
        if out.reconsume_times_max is not None:
            fields["l"] = str(out.reconsume_times_max)
        return RemotingCommand(code, ext_fields=fields, body=out.body)

    def _head(self, queue: MessageQueue, *, is_batch: bool) -> SendHead:
        """Encode the fields that all native requests to a queue share."""
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        fields = self._common_fields(queue, code)
        before = {letter: value for letter, value in fields.items() if letter < OWN_FIELDS[0]}
        after = {letter: value for letter, value in fields.items() if letter > OWN_FIELDS[-1]}
        is_binary = self._client.config.header == "binary"
        return SendHead(queue, code, is_binary, before, after)

    def _common_fields(self, queue: MessageQueue, code: RequestCode) -> dict[str, str]:
        """Return the header of a send to a queue; the fields of `OWN_FIELDS` are 0."""
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
