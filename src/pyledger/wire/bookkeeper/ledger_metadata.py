"""Bytes of a ledger's metadata: a line with the version, then one of three encodings.

Source: BookKeeper meta/LedgerMetadataSerDe.java, bookkeeper-proto/src/main/proto/DataFormats.proto.
"""

from typing import Any

from pyledger.errors import LedgerMetadataError
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.metadata import INVALID_ENTRY_ID, LedgerMetadata, LedgerState, Segment
from pyledger.wire.bookkeeper.schema import DecodeError, EncodeError, format_text, message, parse_text

VERSION_KEY = b"BookieMetadataFormatVersion"
LINES, TEXT, BINARY = 1, 2, 3
VERSION_DIGITS_MAX = 10
CLOSED = "CLOSED"
IN_RECOVERY_MARK = -102
LINES_BEFORE_SEGMENTS = 3
VARINT_BYTES_MAX = 5


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Encode a ledger's metadata in its own version.

    Raises:
        LedgerMetadataError: Its numbers are inconsistent, or its version cannot represent it.
    """
    metadata.check()
    head = VERSION_KEY + b"\t%d\n" % metadata.format_version
    if metadata.format_version == LINES:
        return head + _to_lines(metadata).encode()
    try:
        whole = _to_message(metadata)
        if metadata.format_version == TEXT:
            return head + format_text(whole)
        body: bytes = whole.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise LedgerMetadataError(f"it cannot be written: {error}") from None
    return head + _varint(len(body)) + body


def decode_metadata(data: bytes) -> LedgerMetadata:
    """Read a ledger's metadata.

    Raises:
        LedgerMetadataError: It is malformed, or of a version that is not known.
    """
    head, newline, body = data.partition(b"\n")
    key, _, number = head.partition(b"\t")
    if key != VERSION_KEY or not newline or not number.isdigit() or len(number) > VERSION_DIGITS_MAX:
        raise LedgerMetadataError(f"it does not begin with {VERSION_KEY.decode()!r}, a tab and a number")
    version = int(number)
    try:
        if version == LINES:
            return _from_lines(body.decode()).check()
        if version == TEXT:
            return _from_message(parse_text("LedgerMetadataFormat", body), version).check()
        if version == BINARY:
            whole = message("LedgerMetadataFormat").FromString(_delimited(body))
            return _from_message(whole, version).check()
    except (DecodeError, ValueError) as error:
        raise LedgerMetadataError(f"its version {version} is malformed: {error}") from None
    raise LedgerMetadataError(f"its version {version} is not known; the newest known is {BINARY}")


def _to_message(metadata: LedgerMetadata) -> Any:
    whole = message("LedgerMetadataFormat")(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length if metadata.closed else 0,
        lastEntryId=metadata.last_entry_id if metadata.closed else INVALID_ENTRY_ID,
        state=metadata.state.value,
        ackQuorumSize=metadata.ack_quorum,
        ctime=metadata.ctime,
    )
    for segment in metadata.segments:
        whole.segment.add(ensembleMember=segment.ensemble, firstEntryId=segment.first_entry_id)
    if metadata.digest is not None:
        whole.digestType = metadata.digest.value
    if metadata.password is not None:
        whole.password = metadata.password
    for key, value in metadata.custom.items():
        whole.customMetadata.add(key=key, value=value)
    if metadata.format_version >= BINARY:
        whole.cToken = metadata.token
    return whole


def _from_message(whole: Any, version: int) -> LedgerMetadata:
    state = LedgerState(whole.state)
    closed = state is LedgerState.CLOSED
    has_password = whole.HasField("password")
    digest = DigestType(whole.digestType) if whole.HasField("digestType") else DigestType.CRC32
    return LedgerMetadata(
        ensemble_size=whole.ensembleSize,
        write_quorum=whole.quorumSize,
        ack_quorum=whole.ackQuorumSize if whole.HasField("ackQuorumSize") else whole.quorumSize,
        segments=tuple(
            sorted(
                (Segment(one.firstEntryId, tuple(one.ensembleMember)) for one in whole.segment),
                key=lambda segment: segment.first_entry_id,
            )
        ),
        state=state,
        last_entry_id=whole.lastEntryId if closed and whole.HasField("lastEntryId") else INVALID_ENTRY_ID,
        length=whole.length if closed else 0,
        # Java uses the digest type only if there is a password.
        digest=digest if has_password else None,
        password=whole.password if has_password else None,
        ctime=whole.ctime if whole.HasField("ctime") else None,
        custom={one.key: one.value for one in whole.customMetadata},
        token=whole.cToken,
        format_version=version,
    )


def _to_lines(metadata: LedgerMetadata) -> str:
    if metadata.ack_quorum != metadata.write_quorum:
        raise LedgerMetadataError("version 1 has no separate ack quorum")
    lines = [
        str(metadata.write_quorum),
        str(metadata.ensemble_size),
        str(metadata.length if metadata.closed else 0),
    ]
    lines += ["\t".join((str(one.first_entry_id), *one.ensemble)) for one in metadata.segments]
    end = {
        LedgerState.OPEN: "",
        LedgerState.IN_RECOVERY: f"{IN_RECOVERY_MARK}\t{CLOSED}",
        LedgerState.CLOSED: f"{metadata.last_entry_id}\t{CLOSED}",
    }
    return "\n".join((*lines, end[metadata.state]))


def _from_lines(text: str) -> LedgerMetadata:
    state, last_entry_id, segments = LedgerState.OPEN, INVALID_ENTRY_ID, []
    lines = text.splitlines()
    try:
        write_quorum, ensemble_size, length = (int(line) for line in lines[:LINES_BEFORE_SEGMENTS])
        for line in lines[LINES_BEFORE_SEGMENTS:]:
            first, *rest = line.split("\t")
            if rest == [CLOSED]:
                last_entry_id = int(first)
                state = LedgerState.CLOSED
            else:
                segments.append(Segment(int(first), tuple(rest)))
    except ValueError:
        raise LedgerMetadataError("its lines of version 1 are malformed") from None
    if state is LedgerState.CLOSED and last_entry_id == IN_RECOVERY_MARK:
        state, last_entry_id = LedgerState.IN_RECOVERY, INVALID_ENTRY_ID
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        segments=tuple(segments),
        state=state,
        last_entry_id=last_entry_id,
        length=length if state is LedgerState.CLOSED else 0,
        format_version=LINES,
    )


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _delimited(body: bytes) -> bytes:
    """Return the bytes after their length, a varint."""
    size = 0
    for at, byte in enumerate(body[:VARINT_BYTES_MAX]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            found = body[at + 1 : at + 1 + size]
            if len(found) < size:
                raise LedgerMetadataError(f"it ends after {len(found)} of {size} bytes")
            return found
    raise LedgerMetadataError("it has no length in front")
