"""Ports for servers whose address others must know before they start."""

import itertools
import os
import socket
from collections.abc import Iterator


def port_candidates() -> Iterator[int]:
    """Below those that systems give to clients; no two test processes of a run have one in common.

    A server in Java binds its port seconds after it was found free, so a port is not found twice either.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    lowest, count = 21_000 + worker % 5 * 2_000, 400
    return (lowest + 5 * ((os.getpid() + at) % count) for at in itertools.count())


CANDIDATES = port_candidates()


def free_ports(count: int) -> list[int]:
    """Ports whose neighbours are free too: a broker also listens on the second below and on the next one."""
    free = (one for one in CANDIDATES if all(is_free(port) for port in range(one - 2, one + 3)))
    return list(itertools.islice(free, count))


def is_free(port: int) -> bool:
    """Whether a port of loopback can be had now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
