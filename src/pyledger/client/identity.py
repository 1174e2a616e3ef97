"""Identity of a client: its address, its id, and the unique keys of its messages.

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
    """Return the address of this host that routes to a name server; no packet is sent."""
    try:
        host, port = split_address(name_server)
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return LOOPBACK


def unique_instance_name() -> str:
    """Return a name that no other client of this host has: process id and monotonic time (ns)."""
    return f"{os.getpid()}#{time.monotonic_ns()}"


def client_id(address: str, instance_name: str, unit_name: str) -> str:
    """Return upstream's form: `address@instance`, or `address@instance@unit`."""
    return f"{address}@{instance_name}" + (f"@{unit_name}" if unit_name else "")


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def month_of(moment_ms: int) -> tuple[int, int]:
    """Return the first millisecond of a time's month and of the next month, in local time; all in ms."""
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
        """Return the generator of this process's message ids.

        Args:
            address: Address of this host; later calls get the generator of the first one.
        """
        with self._lock:
            if self._ids is None:
                packed = ip_address(address.partition("%")[0]).packed
                self._ids = UniqueIds(packed, os.getpid(), secrets.randbits(32), month_of)
            return self._ids

    def forget(self) -> None:
        """Drop the generator: a forked child needs its own."""
        self._ids = None
        self._lock = threading.Lock()


PROCESS_IDS = ProcessIds()
os.register_at_fork(after_in_child=PROCESS_IDS.forget)
