"""Messages as JSON fields, with the names that Arrow and Spark use, and as lines of text."""

import base64
import hashlib
import sys
from typing import Any

from pyledger.cli.output import emit, format_time, printable, write_line
from pyledger.errors import CorruptBodyError

BODY_CHOICES = ("auto", "utf8", "base64", "sha256", "none")
BODY_HELP = "auto: text if the body is UTF-8, else base64; sha256: digests of stored and decompressed bytes."
_SHOWN_CHARACTERS = 400


def body_fields(message: Any, choice: str) -> dict[str, Any]:
    """Return the body of a message as JSON fields: text, base64 or digests.

    If a body cannot be decompressed, `bodyProblem` gives the reason and the body is the stored bytes.
    """
    if choice == "none":
        return {}
    fields: dict[str, Any] = {}
    plain: bytes | None
    try:
        plain = message.plain_body
    except CorruptBodyError as error:
        plain, fields["bodyProblem"] = None, error.problem
    if choice == "sha256":
        return {
            "bodySha256": hashlib.sha256(message.body).hexdigest(),
            "plainSha256": None if plain is None else hashlib.sha256(plain).hexdigest(),
            **fields,
        }
    data = message.body if plain is None else plain
    if choice == "utf8":
        return {"body": data.decode("utf-8", "replace"), "bodyEncoding": "utf8", **fields}
    if choice == "auto":
        return text_or_base64(data) | fields
    return {"body": base64.b64encode(data).decode("ascii"), "bodyEncoding": "base64", **fields}


def text_or_base64(data: bytes) -> dict[str, str]:
    """Return bytes as JSON fields: text if they are UTF-8, else base64."""
    try:
        return {"body": data.decode("utf-8"), "bodyEncoding": "utf8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(data).decode("ascii"), "bodyEncoding": "base64"}


def message_fields(message: Any, body: str) -> dict[str, Any]:
    """Return all fields of one message. `tagsCode` is present only if a consume queue contains it."""
    indexed = message.is_indexed
    fields: dict[str, Any] = {
        "kind": "message" if indexed else "unindexed",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "layout": message.layout,
    }
    if indexed:
        fields["tagsCode"] = message.tags_code
    return fields | {
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodyLength": message.body_length,
        "bodyCRC": message.body_crc,
        **body_fields(message, body),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
    }


def print_message(message: Any, *, as_json: bool, body: str) -> None:
    """Print one message, as a JSON line or as text."""
    if as_json:
        emit(message_fields(message, body))
        return
    parts = [
        format_time(message.store_timestamp),
        f"{message.topic}/{message.queue_id}@{message.queue_offset}",
        f"[{message.tags}]" if message.tags else "",
        message.keys or "",
        "" if message.is_indexed else "(in no queue)",
        _shown_body(body_fields(message, body)),
    ]
    write_line("  ".join(printable(part) for part in parts if part))


def _shown_body(fields: dict[str, Any]) -> str:
    """Return the body as text; shortened on a terminal, complete in a pipe."""
    text: str = fields.get("body", fields.get("bodySha256", ""))
    if sys.stdout.isatty() and len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}… ({len(text):,} characters)"
    if fields.get("bodyEncoding") == "base64" and text:
        text = f"base64:{text}"
    if "bodyProblem" in fields:
        text += f" (the body {fields['bodyProblem']})"
    return text
