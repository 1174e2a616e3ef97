"""`host:port`, as people write it."""

PORT_MAX = 65_535
PORT_DIGITS = len(str(PORT_MAX))


def split_address(address: str, least_port: int = 1) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host may stand in brackets.

    Args:
        address: The text.
        least_port: 0 where a free port may be asked for.

    Raises:
        ValueError: it is no such text, or no name of a host.
    """
    host, colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS
    if not colon or not host or not is_number or not least_port <= int(port) <= PORT_MAX:
        raise ValueError("it is not host:port")
    if not can_be_host(host):
        raise ValueError("it names no host")
    return host, int(port)


def can_be_host(name: str) -> bool:
    """Whether a text can name a host; resolvers raise UnicodeError for one that cannot."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True
