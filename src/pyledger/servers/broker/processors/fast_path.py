"""Sends and pulls that native code has decoded, answered without a command in between.

Each is answered as the processor of its code would, or left to it. A check that has to precede all requests
must precede these, too.
"""

from pyledger.net.deferred import DeferredResponse
from pyledger.net.endpoint import Frame
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.context import BrokerContext
from pyledger.servers.broker.processors.pull_message import PullProcessor
from pyledger.servers.broker.processors.send_message import SendProcessor
from pyledger.wire.remoting.native_codec import PullRequest, SendRequest

Answered = tuple[bytes | DeferredResponse[bytes] | None, int]
"""What is sent, now or later, and how many requests it answers."""


class QuickAnswers:
    """Takes what is ordinary."""

    def __init__(self, context: BrokerContext) -> None:
        self._send, self._pull = SendProcessor(context), PullProcessor(context)

    def answer(self, connection: Connection, frames: list[Frame], at: int) -> Answered:
        """Answer a send or a pull with those that follow; how many were taken. 0: the processors have to."""
        request = frames[at]
        if isinstance(request, SendRequest):
            return self._send.send_quickly(connection, frames, at)
        if isinstance(request, PullRequest):
            return None, self._pull.pull_quickly(connection, frames, at)
        return None, 0
