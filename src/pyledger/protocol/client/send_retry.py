"""Whether a failed send is retried.

| failure                                       | `SYNC`     | `ASYNC`      | `ONEWAY` |
|-----------------------------------------------|------------|--------------|----------|
| no address, connecting, writing, no response  | retry      | retry        | no       |
| too many requests in flight                   | retry      | no           | no       |
| rejected with a code of `RETRY_CODES`         | retry      | no           | –        |
| rejected with another code                    | no         | no           | –        |
| stored, but not flushed or not at the slave   | if `retry_when_not_stored_ok` | no | – |

One time limit applies to all attempts together. A send to a chosen queue has one attempt.

Source: RocketMQ client/.../impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl),
DefaultMQProducer.java (retryResponseCodes), impl/MQClientAPIImpl.java (onExceptionImpl).
"""

from enum import Enum

from pyledger.errors import BrokerError, NoRouteError, RemotingError, RemotingTooMuchRequestError
from pyledger.model.remoting_codes import ResponseCode

RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


class SendMode(Enum):
    """How the caller waits for a send."""

    SYNC = "sync"
    ASYNC = "async"
    ONEWAY = "oneway"


def tries_again(mode: SendMode, error: RemotingError) -> bool:
    """Whether to try another broker after an error."""
    if mode is SendMode.ONEWAY or isinstance(error, NoRouteError):
        return False
    if isinstance(error, BrokerError):
        return mode is SendMode.SYNC and error.response_code in RETRY_CODES
    return mode is SendMode.SYNC or not isinstance(error, RemotingTooMuchRequestError)
