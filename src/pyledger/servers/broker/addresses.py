"""Addresses of peers, as the store takes them."""

import ipaddress

from pyledger.net.remoting.connection import Connection

PEER = "broker.peer"
"""Key in the data of a connection: what `peer_of` found."""


def address_of(text: str) -> tuple[str, int]:
    """Return the address literal and port of `ip:port`; an IPv6 address may have brackets and a zone.

    `::ffff:10.0.0.1`, the form that a dual-stack socket reports, becomes the IPv4 address that rules name.
    """
    host, _, port = text.rpartition(":")
    literal = host.removeprefix("[").removesuffix("]").partition("%")[0]
    found = ipaddress.ip_address(literal)
    return str(getattr(found, "ipv4_mapped", None) or found), int(port)


def peer_of(connection: Connection) -> tuple[str, int] | None:
    """Return the address literal and port of a client; None when it has disconnected."""
    known: tuple[str, int] | None = connection.data.get(PEER)
    if known is None and connection.remote_address:
        known = connection.data[PEER] = address_of(connection.remote_address)
    return known


def joined(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
