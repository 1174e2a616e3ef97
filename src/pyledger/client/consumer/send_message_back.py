"""Sends messages that were not consumed back to the broker: for a retry, or as dead letters.

Source: RocketMQ client/.../impl/consumer/DefaultMQPushConsumerImpl.java (sendMessageBack),
ConsumeMessageOrderlyService.java (sendMessageBack).
"""

import logging

from pyledger.client.identity import PROCESS_IDS
from pyledger.client.instance import ClientInstance
from pyledger.client.producer.message_preparation import MessageEncoder
from pyledger.client.producer.sender import Sender
from pyledger.config.client import ProducerConfig
from pyledger.errors import PyLedgerError, RemotingError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.protocol.client.consume_rules import FIRST_DELAY_LEVEL, times_max
from pyledger.protocol.client.send_retry import SendMode
from pyledger.wire.record.record import ReceivedMessage

log = logger("client")

DEAD_LETTER = -1


class SendMessageBack:
    """Sends messages back for one group."""

    def __init__(self, client: ClientInstance, group: str, reconsume_times_max: int) -> None:
        """Create it for a consumer.

        Args:
            client: Connections and routes.
            group: Consumer group.
            reconsume_times_max: Setting of that name; -1 is upstream's default.
        """
        self._client = client
        self._group = group
        self._times_max = times_max(reconsume_times_max, orderly=False)
        self._config = ProducerConfig()
        self._sender = Sender(client, names.INNER_PRODUCER_GROUP, self._config)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Send a message back for a retry; after too many retries it becomes a dead letter.

        If its broker fails, the message is sent to the group's retry topic instead.

        Args:
            message: The message as the listener got it.
            delay_level: Delay of the retry; 0: the broker chooses; below 0: make it a dead letter now.

        Returns:
            False: no broker accepted it.
        """
        try:
            address = self._client.routes.master(message.broker_name)
            await self._client.calls.send_back(address, self._group, message, delay_level, self._times_max)
        except RemotingError as error:
            event(log, logging.WARNING, "message not sent back", message=message, error=error)
            return delay_level >= 0 and await self._send_again(message)
        return True

    async def send_dead_letter(self, message: ReceivedMessage) -> bool:
        """Make a message a dead letter; False: the broker did not accept it."""
        return await self.send_back(message, DEAD_LETTER)

    async def _send_again(self, message: ReceivedMessage) -> bool:
        """Send a message to the group's retry topic, at any broker that has it."""
        properties = dict(message.properties)
        properties.pop(names.TRANSACTION_PREPARED, None)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.unique_key or message.msg_id)
        properties[names.RETRY_TOPIC] = message.topic
        properties[names.RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[names.MAX_RECONSUME_TIMES] = str(self._times_max)
        again = Message(
            names.retry_topic(self._group),
            message.body,
            properties=properties,
            delay_level=FIRST_DELAY_LEVEL + message.reconsume_times,
            flag=message.flag,
        )
        try:
            # For an unknown topic the sender would use queues of the template topic.
            await self._client.routes.refresh(again.topic)
            out = MessageEncoder(self._config, PROCESS_IDS.of(self._client.address)).message(again)
            await self._sender.start(out, SendMode.SYNC)
        except PyLedgerError as error:
            event(log, logging.WARNING, "message not sent again", message=message, error=error)
            return False
        return True
