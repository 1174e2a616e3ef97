"""The door to the native codec of the requests that a broker gets by the million, and of their responses.

`RequestDecoder` stands where `FrameDecoder` does. It gives sends and pulls as `SendRequest` and
`PullRequest`, fields decoded; every other frame, and whatever is unusual in a header, stays a view for
`pyledger.wire.remoting.decode`, which is the model that the native code is tested against.
"""

from pyledger._core import (
    HotRequest,
    PullRequest,
    SendRequest,
    decode_frames,
    encode_pull_response,
    encode_send_response,
)
from pyledger.wire.framing import StreamDecoder
from pyledger.wire.remoting import RemotingCommand, decode

__all__ = [
    "HotRequest",
    "PullRequest",
    "RequestDecoder",
    "SendRequest",
    "command_of",
    "decode_frames",
    "encode_pull_response",
    "encode_send_response",
]


class RequestDecoder(StreamDecoder[memoryview | SendRequest | PullRequest]):
    """Cuts what a broker receives on one connection into requests."""

    __slots__ = ()

    def cut(self, data: bytes | bytearray) -> tuple[list[memoryview | SendRequest | PullRequest], int]:
        """Cut whole frames off the front of bytes that nobody writes to; also return their size in bytes.

        Raises:
            FrameError: a length is too large or too small.
        """
        return decode_frames(data, self.max_frame_bytes)


def command_of(frame: memoryview | HotRequest) -> RemotingCommand:
    """A frame as a command with all its fields, whichever way it was decoded.

    Raises:
        FrameError: it is none.
    """
    return decode(frame.frame if isinstance(frame, HotRequest) else frame)
