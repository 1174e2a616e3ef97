"""Entries of a DLedger log as JSON fields and as lines of text."""

import hashlib
import zlib
from typing import Any

from pyledger.cli.output import printable

_SHOWN_CHARACTERS = 200


def entry_fields(entry: Any) -> dict[str, Any]:
    """An entry as JSON fields, with digests for its body."""
    return {
        "index": entry.index,
        "term": entry.term,
        "pos": entry.pos,
        "magic": entry.magic,
        "size": entry.size,
        "channel": entry.channel,
        "chainCrc": entry.chain_crc,
        "bodyCrc": entry.body_crc,
        "bodyLen": len(entry.body),
        "crc32OfBody": zlib.crc32(entry.body),
        "sha256": hashlib.sha256(entry.body).hexdigest(),
    }


def entry_line(entry: Any) -> str:
    """An entry as a line that a person reads."""
    text = printable(entry.body.decode("utf-8", "replace"))
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    kind = "" if entry.magic == 1 else f" magic {entry.magic}"
    return f"{entry.index} term {entry.term} @{entry.pos}{kind} {len(entry.body)} bytes {shown}"
