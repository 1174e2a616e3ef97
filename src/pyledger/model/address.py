"""Parse `host:port`."""

PORT_MAX = 65_535
PORT_DIGITS = len(str(PORT_MAX))


def split_address(address: str, least_port: int = 1) -> tuple[str, int]:
    """Return host and port of `host:port`; an IPv6 host may be in brackets.

    Args:
        address: The text.
        least_port: 0 if port 0 (any free port) is allowed.

    Raises:
        ValueError: The text is not `host:port`, or the host is not valid.
    """
    host, colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS
    if not colon or not host or not is_number or not least_port <= int(port) <= PORT_MAX:
        raise ValueError("it is not host:port")
    if not can_be_host(host):
        raise ValueError("the host name is not valid")
    return host, int(port)


def can_be_host(name: str) -> bool:
    """Return True if a text can be a host name; for others resolvers raise UnicodeError."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True
