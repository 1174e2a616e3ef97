"""Ids that producers give their messages: unique without asking anybody.

Host address, process id (16 bits) and a number of the process (32 bits), then milliseconds since the first of
the month (32 bits) and a counter (16 bits), in upper-case hex: 32 digits with an IPv4 address, 56 with IPv6.

Source: RocketMQ common/.../message/MessageClientIDSetter.java.
"""

import struct
from collections.abc import Callable

PROCESS = struct.Struct(">HI")
MOMENT = struct.Struct(">IH")
BACKWARD_MAX_MS = 1_000_000


class UniqueIds:
    """Makes the ids of one process."""

    def __init__(
        self,
        address: bytes,
        process_id: int,
        process_number: int,
        month_of: Callable[[int], tuple[int, int]],
    ) -> None:
        """Ids that start with what names this process.

        Args:
            address: Of this host, 4 or 16 bytes.
            process_id: Of the operating system.
            process_number: Tells processes with one id apart, such as a random number.
            month_of: First millisecond of the month of a time in ms, and of the month after it.
        """
        self._prefix = (
            (address + PROCESS.pack(process_id & 0xFFFF, process_number & 0xFFFFFFFF)).hex().upper()
        )
        self._month_of = month_of
        self._start_ms = self._end_ms = 0
        self._counter = 0

    def next(self, now_ms: int) -> str:
        """The next id."""
        if now_ms >= self._end_ms:
            self._start_ms, self._end_ms = self._month_of(now_ms)
        since_ms = now_ms - self._start_ms
        if -BACKWARD_MAX_MS < since_ms < 0:
            since_ms = 0
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return self._prefix + MOMENT.pack(since_ms & 0xFFFFFFFF, counter).hex().upper()
