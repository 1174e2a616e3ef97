"""Which handler answers which request code, and that no body is larger than its code allows."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from pyledger.model.remoting_codes import ResponseCode
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection, Handler
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.request_bodies import READ_AT_ONCE_MAX_BYTES, limit_of, too_large

BUSY = "[REJECTREQUEST]system busy, start flow control for a while"


def reject_unknown(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer a request of a code that has no handler.

    The remark begins with a space, as upstream's does.

    Source: RocketMQ remoting/.../NettyRemotingAbstract.java (processRequestCommand).
    """
    return request.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )


class HandlerTable:
    """A handler that hands each request to the one registered for its code."""

    def __init__(self, default: Handler = reject_unknown) -> None:
        self._by_code: dict[int, Handler] = {}
        self._rejects: dict[int, Callable[[], bool]] = {}
        self._default = default

    def register(self, code: int, handler: Handler, *, reject: Callable[[], bool] | None = None) -> None:
        """Let `handler` answer requests of `code`.

        Args:
            code: A request code.
            handler: Replaces an earlier one.
            reject: Called before each request; while it returns True, the answer is SYSTEM_BUSY (2).
        """
        self._by_code[int(code)] = handler
        self._rejects.pop(int(code), None)
        if reject is not None:
            self._rejects[int(code)] = reject

    def rejects(self, code: int) -> bool:
        """Return whether requests of a code are rejected now."""
        reject = self._rejects.get(code)
        return reject is not None and reject()

    def __call__(self, connection: Connection, request: RemotingCommand) -> Answer | Awaitable[Answer]:
        """Answer a request."""
        handler = self._by_code.get(request.code)
        if handler is None:
            return self._default(connection, request)
        size_bytes, kind = len(request.body), None
        if size_bytes > READ_AT_ONCE_MAX_BYTES:
            if problem := too_large(request.code, size_bytes):
                return request.response(ResponseCode.SYSTEM_ERROR, problem)
            kind = limit_of(request.code).kind
        if self.rejects(request.code):
            return request.response(ResponseCode.SYSTEM_BUSY, BUSY)
        if kind is not None:
            return read_first(kind, handler, connection, request)
        return handler(connection, request)


@cache
def reading_thread() -> ThreadPoolExecutor:
    """Where large bodies are read, one after another: a client that sends many waits for its own."""
    return ThreadPoolExecutor(1, "body")


async def read_first(kind: Any, handler: Handler, connection: Connection, request: RemotingCommand) -> Answer:
    """Answer a request once its body is read, away from the event loop."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(reading_thread(), request.body_as, kind)
    if connection.closed:
        return None
    answer = handler(connection, request)
    return await answer if isinstance(answer, Awaitable) else answer
