"""Producers, consumers and administration, for programs with and without asyncio.

    from pyledger.client import Message, Producer, PushConsumer

    with Producer("orders", "127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"one pizza", tags="food", keys="order-1"))

Classes whose names begin with `Async` are for asyncio; the others block and are thread-safe.
"""

from pyledger.client.admin.admin import AsyncAdmin, Progress
from pyledger.client.blocking.admin import Admin
from pyledger.client.blocking.consumer import LitePullConsumer, PullConsumer, PushConsumer
from pyledger.client.blocking.producer import Producer, TransactionProducer
from pyledger.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pyledger.client.consumer.pull_api import PullResult, PullStatus
from pyledger.client.consumer.pull_consumer import AsyncPullConsumer
from pyledger.client.consumer.push_consumer import AsyncPushConsumer
from pyledger.client.instance import ClientInstance
from pyledger.client.listener import ReconsumeLater
from pyledger.client.producer.producer import AsyncProducer
from pyledger.client.producer.send_result import SendResult, SendStatus, TransactionResult, TransactionState
from pyledger.client.producer.transaction_producer import AsyncTransactionProducer
from pyledger.config.client import ClientConfig, ConsumerConfig, ProducerConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.model.message import Message, MessageQueue
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import TopicConfig
from pyledger.protocol.rebalance.strategies import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from pyledger.wire.record.record import ReceivedMessage

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ClientConfig",
    "ClientInstance",
    "ConsistentHash",
    "ConsumerConfig",
    "LitePullConsumer",
    "MachineRoomNearby",
    "Message",
    "MessageQueue",
    "NetConfig",
    "Producer",
    "ProducerConfig",
    "Progress",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "ReconsumeLater",
    "SendResult",
    "SendStatus",
    "SubscriptionGroup",
    "TlsConfig",
    "TopicConfig",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]
