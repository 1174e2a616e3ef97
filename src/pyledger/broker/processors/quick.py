"""Sends and pulls that native code has decoded, answered without a command in between.

Each is answered as the processor of its code would, or left to it. A check that has to precede all requests
must precede these, too.
"""

from asyncio import Future

from pyledger.broker.parts import BrokerParts
from pyledger.broker.processors.pull import PullProcessor
from pyledger.broker.processors.send import SendProcessor
from pyledger.net.connection import Connection
from pyledger.wire.native import HotRequest, PullRequest, SendRequest


class QuickAnswers:
    """Takes what is ordinary."""

    def __init__(self, parts: BrokerParts) -> None:
        self._send, self._pull = SendProcessor(parts), PullProcessor(parts)

    def answer(self, connection: Connection, request: HotRequest) -> bytes | Future[bytes] | None:
        """Answer a send or a pull; None: the table of processors has to."""
        if isinstance(request, SendRequest):
            return self._send.send_quickly(connection, request)
        if isinstance(request, PullRequest):
            return self._pull.pull_quickly(connection, request)
        return None
