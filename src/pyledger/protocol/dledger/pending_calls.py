"""Calls to other members that are in flight."""

from collections.abc import Callable
from typing import TypeAlias

from pyledger.protocol.dledger.messages import PeerRequest, Response
from pyledger.protocol.dledger.outbox import Outbox

Answer: TypeAlias = Callable[[Response | None, int], None]
"""Called with the response, or None if none arrived, and the time."""


class Calls:
    """Calls that wait for a response. All have the same timeout, so the oldest is the next to expire."""

    def __init__(self, outbox: Outbox, timeout_ms: int) -> None:
        self.outbox, self.timeout_ms = outbox, timeout_ms
        self.last_id = 0
        self.waiting: dict[int, tuple[int, Answer]] = {}

    def send(self, peer: str, request: PeerRequest, answer: Answer, now_ms: int) -> int:
        """Send a request; `answer` is called exactly once. Returns the id of the call."""
        self.last_id += 1
        self.waiting[self.last_id] = (now_ms + self.timeout_ms, answer)
        self.outbox.call(self.last_id, peer, request)
        return self.last_id

    def answered(self, call_id: int, response: Response | None, now_ms: int) -> None:
        """Complete a call with its response; a response to an unknown call is ignored."""
        found = self.waiting.pop(call_id, None)
        if found is not None:
            found[1](response, now_ms)

    def run(self, now_ms: int) -> None:
        """Give up calls that are too old."""
        while self.waiting:
            call_id, (deadline_ms, _) = next(iter(self.waiting.items()))
            if deadline_ms > now_ms:
                return
            self.answered(call_id, None, now_ms)

    def deadline_ms(self) -> int | None:
        """When the oldest call expires, in ms."""
        return next(iter(self.waiting.values()))[0] if self.waiting else None
