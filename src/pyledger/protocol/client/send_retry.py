"""Whether a failed send is tried again.

| what failed                                   | waited for | called back  | one-way |
|-----------------------------------------------|------------|--------------|---------|
| no address, connecting, writing, no answer    | again      | again        | no      |
| too many calls under way                      | again      | no           | no      |
| refused with a code of `RETRY_CODES`          | again      | no           | –       |
| refused with another code                     | no         | no           | –       |
| stored, but not on disk or at the slave       | no, unless asked for | no | –       |

One time limit stands over all attempts. A send to a chosen queue is tried once.

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
    """How a send is waited for."""

    SYNC = "sync"
    ASYNC = "async"
    ONEWAY = "oneway"


def tries_again(mode: SendMode, error: RemotingError) -> bool:
    """Whether another broker is to be tried after an error."""
    if mode is SendMode.ONEWAY or isinstance(error, NoRouteError):
        return False
    if isinstance(error, BrokerError):
        return mode is SendMode.SYNC and error.response_code in RETRY_CODES
    return mode is SendMode.SYNC or not isinstance(error, RemotingTooMuchRequestError)
