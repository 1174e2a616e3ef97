"""Producers of transactions: consumers get a message only if a local transaction was committed.

The half message is stored first, then the local transaction runs, then its outcome is sent to the broker.
That request is one-way and may be lost: the broker then sends a check to any producer of the group, which
calls `check`.

Source: RocketMQ client/.../impl/producer/DefaultMQProducerImpl.java (sendMessageInTransaction,
checkTransactionState, endTransaction).
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Unpack

from pyledger.client.callbacks import invoke
from pyledger.client.instance import ClientInstance
from pyledger.client.producer.message_preparation import DELAYING
from pyledger.client.producer.producer import AsyncProducer
from pyledger.client.producer.send_result import SendStatus, TransactionResult, TransactionState
from pyledger.config.client import ClientConfig, ProducerConfig
from pyledger.config.fields import checked_function
from pyledger.config.keywords import ProducerSettings
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import IllegalMessageError, RemotingError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode
from pyledger.protocol.client.send_retry import SendMode
from pyledger.wire.record.message_id import decode_message_id
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)

log = logger("client")

REMARK_CHARACTERS_MAX = 1024

Execute = Callable[[Message, str], TransactionState | Awaitable[TransactionState]]
"""Runs the local transaction of a message and its transaction id."""
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Returns the state of the local transaction of a half message."""


class AsyncTransactionProducer(AsyncProducer):
    """A producer that can also send messages in transactions."""

    def __init__(
        self,
        group: str,
        name_servers: str = "",
        *,
        check: Check,
        config: ProducerConfig | None = None,
        client: ClientConfig | ClientInstance | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """A producer that connects once it is started.

        Args:
            group: As in `AsyncProducer`. Every producer of the group must be able to check all transactions.
            name_servers: As in `AsyncProducer`.
            check: Called when the broker checks a transaction; returns its state. A coroutine function, or a
                plain one, which runs on a thread.
            config: As in `AsyncProducer`.
            client: As in `AsyncProducer`.
            net: As in `AsyncProducer`.
            tls: As in `AsyncProducer`.
            settings: Single settings of `ProducerConfig`, over those of `config`.

        Raises:
            ConfigError: a setting is unknown or out of range.
            IllegalMessageError: the group name is invalid.
        """
        super().__init__(group, name_servers, config=config, client=client, net=net, tls=tls, **settings)
        checked_function("check", check)
        self._check = check

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers get if `execute` returns `COMMIT`.

        Args:
            message: What to send; it cannot be delayed.
            execute: Runs the local transaction, given the message and its transaction id. An exception rolls
                nothing back: the broker checks later, as it does for `UNKNOWN`.
            timeout_ms: For sending the half message; None: the setting `send_timeout_ms`.

        Raises:
            IllegalMessageError: brokers would reject the message.
            SendError: the half message was not stored; nothing was executed.
            Exception: what `execute` raised.
        """
        if message.delay_level or any(name in message.properties for name in DELAYING):
            raise IllegalMessageError("a message of a transaction cannot be delayed")
        out = self._encoder.message(message, group=self.group)
        sent = await self._start(out, SendMode.SYNC, timeout_ms=timeout_ms)
        state, remark = TransactionState.ROLLBACK, None
        transaction_id = sent.transaction_id or sent.unique_key
        try:
            if sent.status is SendStatus.OK:
                state = TransactionState.UNKNOWN
                state = await invoke(execute, message, transaction_id)
        except Exception as error:
            remark = f"executing the local transaction failed: {error!r}"
            raise
        finally:
            first_id = sent.offset_msg_id.partition(",")[0]
            header = EndTransactionRequestHeader(
                topic=message.topic,
                producer_group=self.group,
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=decode_message_id(first_id).physical_offset,
                commit_or_rollback=state.value,
                msg_id=sent.unique_key,
                transaction_id=transaction_id,
                bname=sent.queue.broker_name,
            )
            await self._end(self.client.routes.master(sent.queue.broker_name), header, remark)
        return TransactionResult(sent, state)

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage
    ) -> None:
        """Check a transaction and send its state to the broker at `address`."""
        self.client.inbound.spawn(self._answer_check(address, header, message))

    async def _answer_check(
        self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage
    ) -> None:
        state, remark = TransactionState.UNKNOWN, None
        try:
            state = await invoke(self._check, message)
        except Exception as error:
            remark = f"checking the local transaction failed: {error!r}"
            log.exception("transaction check failed")
        end = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.properties.get(names.UNIQUE_KEY) or header.msg_id or "",
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        await self._end(address, end, remark)

    async def _end(self, address: str, header: EndTransactionRequestHeader, remark: str | None) -> None:
        """Send the outcome to the broker; if that fails, the broker checks later."""
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header, oneway=True)
        command.remark = None if remark is None else remark[:REMARK_CHARACTERS_MAX]
        try:
            await self.client.calls.call_oneway(address, command)
        except RemotingError as error:
            event(log, logging.WARNING, "transaction outcome not sent", address=address, error=error)
