"""Sockets and addresses as remoting wants them."""

import asyncio
import contextlib
import errno
import resource
import socket
import sys
from typing import Any

from pyledger.model.address import can_be_host, split_address

ACCEPT_PAUSE_S = 1.0
"""How long nothing is accepted after the system ran out of file descriptors or memory."""
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

DESCRIPTORS_MAX = 10_240
"""What macOS allows at most where the hard limit is none (OPEN_MAX)."""
FILES_SHARE, FILES_MAX = 4, 1024
"""A quarter of the file descriptors of a process is reserved for files, but no more than `FILES_MAX`."""


def raise_descriptor_limit() -> None:
    """Raise this process's limit of file descriptors to the hard limit, as a JVM does."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = DESCRIPTORS_MAX if sys.platform == "darwin" and hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def first_kept_descriptor() -> int:
    """The first file descriptor that no connection may take: peers must not keep a server from its files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return 1 << 31
    return soft - min(soft // FILES_SHARE, FILES_MAX)


def prepare(target: socket.socket, send_bytes: int, receive_bytes: int) -> None:
    """Options of every connection; buffers of 0 bytes are left to the kernel."""
    target.setblocking(False)
    target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if send_bytes:
        target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    if receive_bytes:
        target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)


async def bound_socket(host: str, port: int, receive_bytes: int) -> socket.socket:
    """A socket that has the first address of a host; it does not listen yet.

    Raises:
        OSError: the address cannot be had.
    """
    if not can_be_host(host):
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, proto, _, target = found[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_bytes:
            # The window of a connection is agreed before it is accepted.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        listener.bind(target)
    except OSError:
        listener.close()
        raise
    return listener


async def open_socket(address: str, send_bytes: int, receive_bytes: int) -> socket.socket:
    """Connect to `host:port`, trying every address that the host has.

    Raises:
        ValueError: the address is malformed.
        OSError: none of them answers; the last failure.
    """
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    failure: OSError = ConnectionRefusedError("the host has no address")
    for family, kind, proto, _, target in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        candidate = socket.socket(family, kind, proto)
        try:
            prepare(candidate, send_bytes, receive_bytes)
            await loop.sock_connect(candidate, target)
            if candidate.getsockname() == candidate.getpeername():
                # On loopback a connection to a free port of the ephemeral range can reach itself.
                raise ConnectionRefusedError("no process listens there")
        except OSError as error:
            candidate.close()
            failure = error
        except BaseException:
            candidate.close()
            raise
        else:
            return candidate
    raise failure


def address_text(peer: Any) -> str:
    """`ip:port`, with brackets around an IPv6 address; empty for a socket that is gone already."""
    if not isinstance(peer, tuple) or len(peer) < 2:
        return ""
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"


def reason_of(error: OSError) -> str:
    """What went wrong, in a few words."""
    return error.strerror or str(error)
