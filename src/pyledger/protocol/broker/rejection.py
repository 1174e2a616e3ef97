"""A request that the broker's rules turn down: data for a response, not an exception."""

from enum import IntEnum

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import ResponseCode


class ForbiddenType(IntEnum):
    """What forbids a pull, as in the response's field `forbiddenType`.

    Source: RocketMQ common/.../ForbiddenType.java.
    """

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


@lazy_dataclass()
class Rejection:
    """The code and the remark of the response."""

    code: ResponseCode
    remark: str
    forbidden_type: ForbiddenType | None = None
