"""The results of sends and transactions."""

from dataclasses import dataclass
from enum import Enum, StrEnum

from pyledger.errors import BrokerError, RemotingError, SendError, WireError
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.sys_flag import TransactionType
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import SendMessageResponseHeader
from pyledger.wire.remoting.native_codec import PendingSend, set_send_result


class SendStatus(StrEnum):
    """How durably a message is stored; upstream's names."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but not flushed within the broker's limit."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored at the master, but not at a slave in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored at the master; there is no slave."""


STATUS_OF_CODE = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is stored."""

    status: SendStatus
    unique_key: str
    """The id that the producer gave it; for a batch all of them, separated by commas."""
    offset_msg_id: str
    """The id that contains its physical offset; for a batch all of them, separated by commas."""
    queue: MessageQueue
    queue_offset: int
    """Queue offset; for a batch that of the first message."""
    transaction_id: str | None = None
    recall_handle: str | None = None
    """Handle to recall a timer message before its delivery."""


set_send_result(SendResult, SendStatus.OK)


class TransactionState(Enum):
    """The outcome of a local transaction."""

    COMMIT = TransactionType.COMMIT
    """Consumers get the message."""
    ROLLBACK = TransactionType.ROLLBACK
    """The message is discarded."""
    UNKNOWN = TransactionType.NONE
    """The broker checks again later."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of a half message and the outcome of its transaction."""

    sent: SendResult
    state: TransactionState


def given_up(out: PendingSend, failure: RemotingError | WireError) -> SendError:
    """Return the error of a send whose last attempt failed."""
    error = SendError(out.topic, len(out.tried), ", ".join(dict.fromkeys(out.tried)), str(failure))
    error.__cause__ = failure
    return error


def result_of(out: PendingSend, queue: MessageQueue, answer: RemotingCommand, address: str) -> SendResult:
    """Return the result that a broker's response contains.

    Raises:
        BrokerError: the message is not stored.
        SendError: the response is malformed.
    """
    status = STATUS_OF_CODE.get(answer.code)  # type: ignore[call-overload]
    if status is None:
        raise BrokerError(answer.code, answer.remark, address)
    try:
        header = answer.header(SendMessageResponseHeader)
    except WireError as error:
        raise given_up(out, error) from error
    return SendResult(
        status,
        out.unique_key,
        header.msg_id,
        MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        header.queue_offset,
        header.transaction_id,
        header.recall_handle,
    )
