"""Identity of a client: its address, its id, and the ids that it gives to messages.

Source: RocketMQ client/.../ClientConfig.java (buildMQClientId), common/.../MessageClientIDSetter.java.
"""

import os
import secrets
import socket
import threading
import time
from datetime import datetime
from ipaddress import ip_address

from pyledger.model.address import split_address
from pyledger.wire.remoting.native_codec import UniqueIds

LOOPBACK = "127.0.0.1"


def own_address(name_server: str) -> str:
    """The address of this host as a name server sees it; no packet is sent."""
    try:
        host, port = split_address(name_server)
        family, kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return LOOPBACK


def unique_instance_name() -> str:
    """A name that no other client of this host has: process id and a moment."""
    return f"{os.getpid()}#{time.monotonic_ns()}"


def client_id(address: str, instance_name: str, unit_name: str) -> str:
    """Upstream's form: `address@instance`, and the unit where there is one."""
    return f"{address}@{instance_name}" + (f"@{unit_name}" if unit_name else "")


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def month_of(moment_ms: int) -> tuple[int, int]:
    """First millisecond of the month of a time in ms, by local time, and of the month after it."""
    here = datetime.fromtimestamp(moment_ms / 1000).astimezone()
    first = here.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp() * 1000), int(after.timestamp() * 1000)


class ProcessIds:
    """Ids of messages, unique over all clients of this process and its forks."""

    def __init__(self) -> None:
        self._ids: UniqueIds | None = None
        self._lock = threading.Lock()

    def of(self, address: str) -> UniqueIds:
        """What makes the ids of this process.

        Args:
            address: Of this host; the one of the first call is used.
        """
        with self._lock:
            if self._ids is None:
                packed = ip_address(address.partition("%")[0]).packed
                self._ids = UniqueIds(packed, os.getpid(), secrets.randbits(32), month_of)
            return self._ids

    def forget(self) -> None:
        """Begin anew: a fork is another process."""
        self._ids = None
        self._lock = threading.Lock()


PROCESS_IDS = ProcessIds()
os.register_at_fork(after_in_child=PROCESS_IDS.forget)
