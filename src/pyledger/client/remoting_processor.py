"""Requests that brokers send to their clients.

Source: RocketMQ client/.../impl/ClientRemotingProcessor.java.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pyledger.client.registered_groups import ConsumerMember, ProducerMember
from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.request_table import HandlerTable
from pyledger.wire.record.properties import decode_properties
from pyledger.wire.record.record import ReceivedMessage, decode_records
from pyledger.wire.remoting.bodies.offsets import ConsumerStatus, QueueOffsets
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from pyledger.wire.remoting.headers.send import CheckTransactionStateRequestHeader, ReplyMessageRequestHeader

log = logger("client")


class ClientRemotingProcessor:
    """Answers brokers for one client instance."""

    def __init__(
        self,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        rebalance_soon: Callable[[], None],
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._rebalance_soon = rebalance_soon
        self._work: set[asyncio.Task[None]] = set()
        self.replies: dict[str, asyncio.Future[ReceivedMessage]] = {}
        """Requests of this client that wait for a reply, by correlation id."""

    def handlers(self) -> HandlerTable:
        """Return the handlers by request code; all other requests are rejected."""
        table = HandlerTable()
        table.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._ids_changed)
        table.register(RequestCode.CHECK_TRANSACTION_STATE, self._check_transaction)
        table.register(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets)
        table.register(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        table.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running)
        table.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)
        table.register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._reply)
        return table

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; `close` cancels it."""
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def close(self) -> None:
        """Cancel background coroutines and pending replies."""
        for task in tuple(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        for future in self.replies.values():
            future.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PyLedgerError as error:
            event(log, logging.WARNING, "request of a broker failed", error=error)
        except Exception:
            log.exception("request of a broker failed")

    # --- handlers

    def _ids_changed(self, _connection: Connection, _request: RemotingCommand) -> Answer:
        self._rebalance_soon()
        return None

    def _check_transaction(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = request.header(CheckTransactionStateRequestHeader)
        for message in decode_records(request.body):
            group = message.properties.get(names.PRODUCER_GROUP, "")
            producer = self._producers.get(group)
            if producer is None:
                event(log, logging.WARNING, "transaction check for unknown group", group=group)
            else:
                producer.check_transaction(connection.remote_address, header, message)
        return None

    def _reset_offsets(self, _connection: Connection, request: RemotingCommand) -> Answer:
        header = request.header(ResetOffsetRequestHeader)
        consumer = self._consumers.get(header.group)
        if consumer is not None:
            consumer.reset_offsets(header.topic, QueueOffsets.decode(request.body).offset_table)
        return None

    def _status(self, _connection: Connection, request: RemotingCommand) -> Answer:
        header = request.header(GetConsumerStatusRequestHeader)
        consumer = self._consumers.get(header.group)
        table = {} if consumer is None else consumer.status(header.topic)
        return request.response(body=ConsumerStatus(message_queue_table=table).encode())

    def _running(self, _connection: Connection, request: RemotingCommand) -> Answer:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is None:
            remark = f"The Consumer Group <{header.consumer_group}> not exist in this consumer"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(body=consumer.running().encode())

    async def _consume_directly(self, _connection: Connection, request: RemotingCommand) -> Answer:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is None:
            remark = f"The Consumer Group <{header.consumer_group}> not exist in this consumer"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        message = decode_records(request.body)[0]
        message.broker_name = header.broker_name or ""
        return request.response(body=(await consumer.consume_directly(message)).encode())

    def _reply(self, _connection: Connection, request: RemotingCommand) -> Answer:
        header = request.header(ReplyMessageRequestHeader)
        properties = decode_properties((header.properties or "").encode())
        future = self.replies.get(properties.get(names.CORRELATION_ID, ""))
        if future is not None and not future.done():
            future.set_result(ReceivedMessage.of_reply(header, properties, bytes(request.body)))
        return request.response()
