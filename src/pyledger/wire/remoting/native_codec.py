"""The door to the native codec: heads of frames, and what comes by the million.

For a broker these are sends and pulls, for a member of a group appends, for a client their answers, and the
entries of ledgers.
`RequestDecoder`, `AppendDecoder` and `AnswerDecoder` replace `FrameDecoder`. They give what comes
often decoded; every other frame stays a view for `pyledger.wire.remoting.command.decode`. What is unusual
the native code leaves to Python, which is the model that it is tested against.
"""

from typing import Any

from pyledger._core import (
    AddEncoder,
    AppendAnswers,
    AppendBatch,
    AppendFuture,
    AppendHead,
    DecodedRequest,
    PendingSend,
    PullFuture,
    PullHead,
    PullRequest,
    ReceivedRecord,
    ResponseFuture,
    SendBatch,
    SendHead,
    SendRequest,
    UniqueIds,
    added_number,
    count_bodies,
    count_whole_entries,
    decode_frames,
    decode_head,
    encode_adds,
    encode_pull_response,
    encode_send_response,
    measure_entries,
    parse_lenient_json,
    prepare_message,
    prepare_messages,
    read_records,
    set_append_response,
    set_send_result,
    split_entries,
    split_responses,
    take_entries,
)
from pyledger.wire.remoting.framing import StreamDecoder

__all__ = [
    "AddEncoder",
    "AnswerDecoder",
    "AppendAnswers",
    "AppendBatch",
    "AppendDecoder",
    "AppendFuture",
    "AppendHead",
    "DecodedRequest",
    "PendingSend",
    "PullFuture",
    "PullHead",
    "PullRequest",
    "ReceivedRecord",
    "RequestDecoder",
    "ResponseFuture",
    "SendBatch",
    "SendHead",
    "SendRequest",
    "UniqueIds",
    "added_number",
    "count_bodies",
    "count_whole_entries",
    "decode_frames",
    "decode_head",
    "encode_adds",
    "encode_pull_response",
    "encode_send_response",
    "measure_entries",
    "parse_lenient_json",
    "prepare_message",
    "prepare_messages",
    "read_records",
    "set_append_response",
    "set_send_result",
    "split_entries",
    "split_responses",
    "take_entries",
]


class RequestDecoder(StreamDecoder[memoryview | SendRequest | PullRequest]):
    """Splits the bytes that a broker receives on one connection into requests."""

    __slots__ = ()

    def split(self, data: bytes | bytearray) -> tuple[list[memoryview | SendRequest | PullRequest], int]:
        """Split complete frames off the start of immutable bytes; also return their size in bytes.

        Raises:
            FrameError: a length is too large or too small.
        """
        return decode_frames(data, self.max_frame_bytes)


class AppendDecoder(StreamDecoder[memoryview | AppendBatch]):
    """Splits the bytes that a member receives; adjacent appends of one entry become one batch."""

    __slots__ = ()

    def split(self, data: bytes | bytearray) -> tuple[list[memoryview | AppendBatch], int]:
        """Split complete frames off the start of immutable bytes; also return their size in bytes.

        Raises:
            FrameError: a length is too large or too small.
        """
        return decode_frames(data, self.max_frame_bytes, appends=True)


class AnswerDecoder(StreamDecoder[memoryview | ResponseFuture]):
    """Splits the bytes that a client receives; responses to sends and pulls go into their futures."""

    __slots__ = ("_calls",)

    def __init__(self, max_frame_bytes: int, calls: dict[int, Any]) -> None:
        """Decode for the calls of one connection.

        Args:
            max_frame_bytes: Longest frame.
            calls: By opaque; one that is answered is taken out.
        """
        super().__init__(max_frame_bytes)
        self._calls = calls

    def split(self, data: bytes | bytearray) -> tuple[list[memoryview | ResponseFuture], int]:
        """Split complete frames off the start of immutable bytes; also return their size in bytes.

        Raises:
            FrameError: a length is too large or too small.
        """
        return decode_frames(data, self.max_frame_bytes, self._calls)
