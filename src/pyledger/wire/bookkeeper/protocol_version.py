"""Which version of the protocol a connection speaks: recognised by its frames; version 2 is final.

Source: BookKeeper proto/BookieProtoEncoding.java (RequestDecoder).
"""

from dataclasses import replace
from typing import NamedTuple

from pyledger.errors import LedgerFrameError
from pyledger.protocol.bookkeeper.messages import ReadResponse, Request, Response, Status
from pyledger.wire.bookkeeper import version2, version3

LENGTH_BYTES = 4
OLD_VERSION_MAX = 2
"""The newest version that is not protobuf."""


class ProtocolVersion(NamedTuple):
    """How a request was encoded, and its response has to be."""

    is_protobuf: bool
    """As version 3 is."""
    number: int
    """What the request states: a response that is not protobuf repeats it."""


PROTOBUF = ProtocolVersion(True, version3.VERSION)


class VersionNegotiation:
    """How the requests of one connection are decoded.

    Attributes:
        is_version2: A frame came that is not of version 3.
    """

    __slots__ = ("is_version2",)

    def __init__(self) -> None:
        """For a connection that has sent nothing yet."""
        self.is_version2 = False

    def decode(self, frame: memoryview) -> tuple[Request, ProtocolVersion]:
        """A request, and the version of its response.

        Raises:
            LedgerFrameError: It is not a request; the connection must be closed.
        """
        if not self.is_version2:
            try:
                return version3.decode_request(frame), PROTOBUF
            except LedgerFrameError:
                request = version2.decode_request(frame)
                self.is_version2 = True
                return request, ProtocolVersion(False, version2.version_of(frame))
        return version2.decode_request(frame), ProtocolVersion(False, version2.version_of(frame))


def encode_response(response: Response, version: ProtocolVersion) -> tuple[bytes, ...]:
    """A whole frame, in parts: an entry that is read is one of them, and is not copied.

    Args:
        response: Its content.
        version: Of its request, see `VersionNegotiation.decode`.

    Raises:
        LedgerFrameError: The version has no such response.
    """
    parts: tuple[bytes, ...]
    if isinstance(response, ReadResponse) and response.status is Status.EOK and response.entry is not None:
        if version.is_protobuf:
            parts = version3.encode_found(response, response.entry)
        else:
            body = version2.encode_response(replace(response, entry=None), version.number)
            parts = body, response.entry
    elif version.is_protobuf:
        parts = (version3.encode_response(response),)
    else:
        parts = (version2.encode_response(response, version.number),)
    return sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big"), *parts
