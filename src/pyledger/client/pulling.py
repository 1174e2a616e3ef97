"""Pulling messages of one queue.

Source: RocketMQ client/.../impl/consumer/PullAPIWrapper.java, impl/MQClientAPIImpl.java.
"""

from dataclasses import dataclass
from enum import Enum

from pyledger import names
from pyledger.client.instance import ClientInstance
from pyledger.config.client import ConsumerConfig
from pyledger.errors import BrokerError
from pyledger.message import MessageQueue
from pyledger.protocol.delivery.pull_rules import PullFlag
from pyledger.wire.codes import RequestCode, ResponseCode
from pyledger.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pyledger.wire.record import ReceivedMessage, decode_records
from pyledger.wire.remoting import RemotingCommand
from pyledger.wire.subscription import Subscription


class PullStatus(Enum):
    """What a pull found."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """The queue does not reach to the offset; `next_offset` is where it does."""


STATUS_OF_CODE: dict[int, PullStatus] = {int(status.value): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull found, and where to go on."""

    status: PullStatus
    next_offset: int
    """Queue offset of the next pull."""
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()


class Puller:
    """Pulls for one group; remembers which broker id each queue is best read from."""

    def __init__(
        self, client: ClientInstance, group: str, config: ConsumerConfig, *, lite: bool = False
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._lite = lite
        self._broker_ids: dict[MessageQueue, int] = {}
        self._old_brokers: set[str] = set()
        """Addresses of brokers without the code of lite pulls, which came with 5.0."""

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        count_max: int | None = None,
        commit_offset: int | None = None,
        suspend: bool = True,
        with_expression: bool = False,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Ask for messages.

        Args:
            queue: The queue.
            offset: Queue offset of the first message.
            subscription: What is wanted of the topic.
            count_max: Messages; None: the setting `pull_batch_count`.
            commit_offset: Where the group stands, to be kept by the broker.
            suspend: Let the broker wait for a message.
            with_expression: Send the subscription along; without, it is the one of the heartbeats.
            timeout_ms: Limit of the call; None: the setting `pull_timeout_ms`.

        Raises:
            BrokerError: the broker refuses.
            RemotingError: it cannot be reached, or does not answer in time.
        """
        config = self._config
        address, is_slave = self._client.routes.reader(queue.broker_name, self._broker_ids.get(queue, 0))
        committed = commit_offset is not None and not is_slave
        flags = (
            (PullFlag.COMMIT_OFFSET if committed else 0)
            | (PullFlag.SUSPEND if suspend else 0)
            | (PullFlag.SUBSCRIPTION if with_expression else 0)
            | (PullFlag.LITE if self._lite else 0)
        )
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max or config.pull_batch_count,
            sys_flag=int(flags),
            commit_offset=(commit_offset or 0) if committed else 0,
            suspend_timeout_millis=config.suspend_timeout_ms,
            subscription=subscription.sub_string if with_expression else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=config.pull_batch_bytes,
            bname=queue.broker_name,
        )
        answer = await self._ask(address, header, timeout_ms or config.pull_timeout_ms)
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address)
        found = answer.header(PullMessageResponseHeader)
        self._broker_ids[queue] = found.suggest_which_broker_id
        messages: tuple[ReceivedMessage, ...] = ()
        if status is PullStatus.FOUND:
            messages = self._received(queue, answer, found.offset_delta or 0, subscription)
        return PullResult(status, found.next_begin_offset, found.min_offset, found.max_offset, messages)

    async def _ask(self, address: str, header: PullMessageRequestHeader, timeout_ms: int) -> RemotingCommand:
        """Lite pulls have a code of their own; a broker that does not know it takes the ordinary one."""
        if self._lite and address not in self._old_brokers:
            command = RemotingCommand.request(RequestCode.LITE_PULL_MESSAGE, header)
            answer = await self._client.calls.call(address, command, timeout_ms)
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return answer
            self._old_brokers.add(address)
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        return await self._client.calls.call(address, command, timeout_ms)

    def _received(
        self, queue: MessageQueue, answer: RemotingCommand, delta: int, subscription: Subscription
    ) -> tuple[ReceivedMessage, ...]:
        """The messages of an answer; of those that only share the hash of a tag none."""
        messages = []
        wanted = set(subscription.tags_set)
        for message in decode_records(answer.body):
            message.broker_name, message.queue_id = queue.broker_name, queue.queue_id
            message.queue_offset += delta
            if not wanted or message.tags in wanted:
                messages.append(message)
        return tuple(messages)


def delivered(message: ReceivedMessage) -> ReceivedMessage:
    """The message as its listener sees it: a retried one under the topic it came from."""
    if message.topic.startswith(names.RETRY_PREFIX):
        message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
    return message
