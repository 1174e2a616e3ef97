"""Requests of a client as whole frames, and responses with the key of their request.

In version 3 that is a number that the client chose. Version 2 has none but in batched reads: there it is what
the answer is about, and requests that are alike share an answer. So a client sends no fencing read in version
2: an answer to a plain read of the same entry could be taken for its own.
"""

import itertools
from collections.abc import Hashable
from dataclasses import replace

from pyledger.errors import LedgerFrameError
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from pyledger.wire.bookkeeper import version2, version3
from pyledger.wire.bookkeeper.entry import EntryDigest, pack_entry
from pyledger.wire.remoting.framing import StreamDecoder
from pyledger.wire.remoting.native_codec import AddEncoder, encode_adds, split_responses

LENGTH_BYTES = 4
ADDED = AddResponse(status=Status.EOK, ledger_id=-1, entry_id=-1)
"""The response to a single successful add; its number identified the request."""
RequestFrame = tuple[Hashable, tuple[bytes, ...]]
"""Key of the answer, and the parts of the frame."""


class AnswerFrames(StreamDecoder[memoryview | tuple[int, int]]):
    """Gives each frame as a view; adds of version 3 that went well by the first number and their count."""

    __slots__ = ()

    def split(self, data: bytes | bytearray) -> tuple[list[memoryview | tuple[int, int]], int]:
        """See `StreamDecoder.split`."""
        return split_responses(data, self.max_frame_bytes)


class HmacAddEncoder:
    """Frames of the adds to one ledger whose entries bear an HMAC, which native code does not compute."""

    def __init__(self, ledger_id: int, key: bytes, digest: EntryDigest, *, deferred_sync: bool) -> None:
        """For one writer; see `AddEncoder`."""
        self._ledger_id, self._key, self._digest = ledger_id, key, digest
        self._deferred_sync = deferred_sync

    def encode_batch(
        self, number: int, entry_id: int, last_add_confirmed: int, length: int, payloads: list[bytes]
    ) -> bytes:
        """Frames of adds of consecutive entries; `length` bytes are before them; see `AddEncoder`."""
        entries = []
        for at, payload in enumerate(payloads, entry_id):
            length += len(payload)
            entries.append(pack_entry(self._digest, self._ledger_id, at, last_add_confirmed, length, payload))
        return encode_adds(number, self._ledger_id, self._key, entries, deferred_sync=self._deferred_sync)


def add_encoder(
    ledger_id: int, key: bytes, digest: EntryDigest, *, deferred_sync: bool
) -> AddEncoder | HmacAddEncoder:
    """What makes the frames of the adds to one ledger.

    Args:
        ledger_id: Which.
        key: Its master key.
        digest: Of its entries.
        deferred_sync: The adds may be answered before they are on disk.
    """
    if digest.type is DigestType.HMAC:
        return HmacAddEncoder(ledger_id, key, digest, deferred_sync=deferred_sync)
    return AddEncoder(ledger_id, key, digest.type.value, deferred_sync=deferred_sync)


class Version3:
    """Numbers requests; one count for all connections, so that a frame may go to several bookies."""

    def __init__(self) -> None:
        """Begin with 1."""
        self._next = 1

    def numbers(self, count: int) -> int:
        """Reserve `count` request numbers and return the first."""
        first, self._next = self._next, self._next + count
        return first

    def encode(self, request: Request) -> RequestFrame:
        """A frame.

        Raises:
            LedgerFrameError: There is no such request, or a field is out of its range.
        """
        number = self.numbers(1)
        body = version3.encode_request(replace(request, txn_id=number))
        return number, (len(body).to_bytes(LENGTH_BYTES, "big"), body)

    def encode_read(self, ledger_id: int, entry_id: int) -> RequestFrame:
        """The frame of a plain read, sooner."""
        number = self.numbers(1)
        return number, (version3.encode_read(number, ledger_id, entry_id),)

    @staticmethod
    def decode(frame: memoryview) -> tuple[Hashable, Response]:
        """Key and answer.

        Raises:
            LedgerFrameError: It is no answer.
        """
        response = version3.decode_response(frame)
        return response.txn_id, response


class Version2:
    """Numbers batched reads alone."""

    def __init__(self) -> None:
        """Begin with 1."""
        self._numbers = itertools.count(1)

    def encode(self, request: Request) -> RequestFrame:
        """A frame.

        Raises:
            LedgerFrameError: Version 2 has no such request, or no key for its response.
        """
        number = next(self._numbers)
        if isinstance(request, ReadRequest) and request.fence:
            raise LedgerFrameError("version 2 does not distinguish the responses to fencing and plain reads")
        body = version2.encode_request(replace(request, txn_id=number))
        return _key(request, number), (len(body).to_bytes(LENGTH_BYTES, "big"), body)

    @staticmethod
    def decode(frame: memoryview) -> tuple[Hashable, Response]:
        """Key and answer.

        Raises:
            LedgerFrameError: It is no answer.
        """
        response = version2.decode_response(frame)
        return _key(response, response.txn_id), response


def _key(message: Request | Response, number: int) -> Hashable:
    match message:
        case BatchReadRequest() | BatchReadResponse():
            return message.operation, number
        case AddRequest() | AddResponse() | ReadRequest() | ReadResponse():
            return message.operation, message.ledger_id, message.entry_id
        case _:
            return message.operation
