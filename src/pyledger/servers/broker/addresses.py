"""Addresses of peers, as the store takes them."""

import ipaddress

from pyledger.net.remoting.connection import Connection

PEER = "broker.peer"
"""Key in the data of a connection: what `peer_of` found."""


def address_of(text: str) -> tuple[str, int]:
    """Address literal and port of `ip:port`; an IPv6 address may stand in brackets and name its zone.

    An IPv4 address as a socket of both families tells it, `::ffff:10.0.0.1`, is that IPv4 address: rules name
    it so.
    """
    host, _, port = text.rpartition(":")
    literal = host.removeprefix("[").removesuffix("]").partition("%")[0]
    found = ipaddress.ip_address(literal)
    return str(getattr(found, "ipv4_mapped", None) or found), int(port)


def peer_of(connection: Connection) -> tuple[str, int] | None:
    """Address literal and port of a client; None when it is gone already."""
    known: tuple[str, int] | None = connection.data.get(PEER)
    if known is None and connection.remote_address:
        known = connection.data[PEER] = address_of(connection.remote_address)
    return known


def joined(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
