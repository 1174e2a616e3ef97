"""Which handler answers which request code."""

from collections.abc import Awaitable, Callable

from pyledger.net.connection import Connection, Handler
from pyledger.net.endpoint import Answer
from pyledger.wire.codes import ResponseCode
from pyledger.wire.remoting import RemotingCommand

BUSY = "[REJECTREQUEST]system busy, start flow control for a while"


def refuse_unknown(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer a request of a code that nobody handles.

    The remark begins with a space, as upstream's does.

    Source: RocketMQ remoting/.../NettyRemotingAbstract.java (processRequestCommand).
    """
    return request.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )


class HandlerTable:
    """A handler that hands each request to the one registered for its code."""

    def __init__(self, default: Handler = refuse_unknown) -> None:
        self._by_code: dict[int, Handler] = {}
        self._default = default

    def register(self, code: int, handler: Handler, *, reject: Callable[[], bool] | None = None) -> None:
        """Let `handler` answer requests of `code`.

        Args:
            code: A request code.
            handler: Replaces an earlier one.
            reject: Asked before each request; while it says so, the answer is SYSTEM_BUSY (2).
        """
        self._by_code[int(code)] = handler if reject is None else guarded(handler, reject)

    def __call__(self, connection: Connection, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        """Answer a request."""
        return self._by_code.get(request.code, self._default)(connection, request)


def guarded(handler: Handler, reject: Callable[[], bool]) -> Handler:
    """`handler`, behind a question whether it takes requests now."""

    def handle(connection: Connection, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        if reject():
            return request.response(ResponseCode.SYSTEM_BUSY, BUSY)
        return handler(connection, request)

    return handle
