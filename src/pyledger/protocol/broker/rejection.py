"""A request that the broker's rules turn down: data for a response, not an exception."""

from enum import IntEnum

from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.value_type import value_type


class ForbiddenType(IntEnum):
    """Who forbids a pull, as the response's field `forbiddenType` says.

    Source: RocketMQ common/.../ForbiddenType.java.
    """

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


@value_type()
class Refusal:
    """The code and the remark of the response."""

    code: ResponseCode
    remark: str
    forbidden_type: ForbiddenType | None = None
