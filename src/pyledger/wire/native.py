"""The door to the native codec: heads of frames, and the requests that a broker gets by the million.

`RequestDecoder` stands where `FrameDecoder` does. It gives sends and pulls as `SendRequest` and
`PullRequest`, fields decoded; every other frame stays a view for `pyledger.wire.remoting.decode`. What is
unusual in a header the native code leaves to Python, which is the model that it is tested against.
"""

from pyledger._core import (
    HotRequest,
    PullRequest,
    SendRequest,
    SendRun,
    decode_frames,
    decode_head,
    encode_pull_response,
    encode_send_response,
)
from pyledger.wire.framing import StreamDecoder

__all__ = [
    "HotRequest",
    "PullRequest",
    "RequestDecoder",
    "SendRequest",
    "SendRun",
    "decode_frames",
    "decode_head",
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
