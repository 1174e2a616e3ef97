"""Which version of the protocol a connection speaks: told by its frames, and version 2 once is for ever.

Source: BookKeeper proto/BookieProtoEncoding.java (RequestDecoder).
"""

from dataclasses import replace

from pyledger.errors import LedgerFrameError
from pyledger.protocol.bookkeeper.messages import ReadResponse, Request, Response, Status
from pyledger.wire.bookkeeper import version2, version3

LENGTH_BYTES = 4
AS_VERSION_3 = 0


class VersionNegotiation:
    """How the requests of one connection are read, and its answers written.

    Attributes:
        is_version2: A frame came that is none of version 3.
    """

    __slots__ = ("is_version2",)

    def __init__(self) -> None:
        """A connection that has said nothing yet."""
        self.is_version2 = False

    def decode(self, frame: memoryview) -> tuple[Request, int]:
        """A request, and how its answer has to be written: 0 as version 3, else in the words of version 2.

        An answer in the words of version 2 repeats what the request calls itself, so that is told too, as its
        complement: the number is negative.

        Raises:
            LedgerFrameError: It is none; the connection has to be closed.
        """
        if not self.is_version2:
            try:
                return version3.decode_request(frame), AS_VERSION_3
            except LedgerFrameError:
                request = version2.decode_request(frame)
                self.is_version2 = True
                return request, ~version2.version_of(frame)
        return version2.decode_request(frame), ~version2.version_of(frame)


def encode_answer(response: Response, manner: int) -> tuple[bytes, ...]:
    """A whole frame, in parts: an entry that is read is one of them, and is not copied.

    Args:
        response: What to say.
        manner: As `VersionNegotiation.decode` told it.

    Raises:
        LedgerFrameError: The version has no such answer.
    """
    parts: tuple[bytes, ...]
    if isinstance(response, ReadResponse) and response.status is Status.EOK and response.entry is not None:
        if manner == AS_VERSION_3:
            parts = version3.encode_found(response, response.entry)
        else:
            parts = version2.encode_response(replace(response, entry=None), ~manner), response.entry
    elif manner == AS_VERSION_3:
        parts = (version3.encode_response(response),)
    else:
        parts = (version2.encode_response(response, ~manner),)
    return sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big"), *parts
