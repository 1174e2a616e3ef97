"""The results of sends and transactions."""

from dataclasses import dataclass
from enum import Enum, StrEnum

from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.sys_flag import TransactionType
from pyledger.wire.remoting.native_codec import set_send_result


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
