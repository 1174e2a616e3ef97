"""Rows that tasks have written and that are not committed yet: Arrow files beside the log.

Their columns are body, keys, queueId (-1: none), bornTimestamp (ms, 0: none), properties encoded as in a
record, with tags and keys, and topic unless it is an option. A column that the rows of a task cannot have is
not staged. The files are in `<store>/spark/<job>/`, one per finished task. The commit deletes them together
with those of failed tasks; a later write deletes those of a killed job.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyledger.atomic_file import flush_folder
from pyledger.config.store import StoreConfig
from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.protocol.broker.name_rules import topic_problem
from pyledger.store.files.folder import STAGING_FOLDER
from pyledger.store.files.writeback_file import WritebackFile
from pyledger.wire.record.properties import PROPERTIES_SIZE_MAX_BYTES

BODY_BYTES_MAX = StoreConfig().max_message_size_bytes
"""A write opens its store with this setting."""
_SEPARATORS = "\x01\x02"
_NAMED = {"TAGS": "tags", "KEYS": "keys"}
"""Properties with columns of their own."""
_DIGEST = "__CRC32#"
_ABSENT = {
    "keys": pa.scalar("", pa.string()),
    "queueId": pa.scalar(-1, pa.int32()),
    "bornTimestamp": pa.scalar(0, pa.int64()),
    "properties": pa.scalar(b"", pa.binary()),
}
"""Values of columns that are not staged."""
_FIELDS = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": pa.timestamp("ms", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The file that one task wrote."""

    name: str
    row_count: int
    topics: tuple[str, ...]


def staging_folder(store: str, job: str) -> Path:
    """Return the folder of a job's staged files."""
    return Path(store) / STAGING_FOLDER / job


def stage_rows(folder: Path, batches: Iterable[Any], topic: str | None) -> StagedFile:
    """Check the rows of one task and write them to a file; every staged row can be appended.

    Args:
        folder: The staging folder of the job.
        batches: Arrow record batches with the columns of messages.
        topic: The topic of all rows; None: it is in the column `topic`.

    Raises:
        IllegalMessageError: a row is not a valid message; names the column and the reason.
        RecordTooLargeError: the body or the properties of a row are too large.

    Durability: on return the file survives a power failure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{uuid.uuid4().hex}.arrow"
    count, topics = 0, set() if topic is None else {topic}
    writer = None
    with ExitStack() as opened:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = _checked(batch, topic)
            if topic is None:
                topics |= set(pc.unique(rows.column("topic")).to_pylist())
            if writer is None:
                file = opened.enter_context(WritebackFile(folder / name))
                writer = pa.ipc.new_file(file.sink, rows.schema)
            writer.write_batch(rows)
            file.start_writeback()
            count += rows.num_rows
        if writer is not None:
            writer.close()
            file.flush()
            flush_folder(folder)
    for one in topics:
        if (problem := topic_problem(one)) is not None:
            raise IllegalMessageError(f"topic {one!r}: {problem}")
    return StagedFile(name if count else "", count, tuple(sorted(topics)))


def read_staged(folder: Path, names: Iterable[str]) -> Iterator[Any]:
    """Yield the rows of staged files in order, as Arrow record batches over mapped memory."""
    for name in names:
        with pa.memory_map(str(folder / name)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield _completed(reader.get_batch(index))


def _checked(batch: Any, topic: str | None) -> Any:
    """Return the columns to stage, after checking every row."""
    given: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        if name in batch.schema.names and not (name == "topic" and topic is not None):
            try:
                given[name] = batch.column(name).cast(kind, safe=name != "bornTimestamp")
            except pa.ArrowInvalid as error:
                raise IllegalMessageError(f"{name}: {error}") from error
    for name in ("body", "topic"):
        if name in given and given[name].null_count:
            raise IllegalMessageError(f"{name}: is null in a row, and every message needs one")
    longest = pc.max(pc.binary_length(given["body"])).as_py()
    if longest > BODY_BYTES_MAX:
        raise RecordTooLargeError("body", longest, BODY_BYTES_MAX)
    if "queueId" in given and (pc.min(given["queueId"]).as_py() or 0) < 0:
        raise IllegalMessageError("queueId: is below 0 in a row")
    _check_texts(given)
    _take_names(given)
    staged: dict[str, Any] = {name: given[name] for name in ("topic", "body") if name in given}
    for name in ("keys", "queueId", "bornTimestamp"):
        if name in given:
            staged[name] = pc.fill_null(given[name].cast(_ABSENT[name].type), _ABSENT[name])
    if "keys" in given or "tags" in given or "properties" in given:
        staged["properties"] = _stored_form(given, batch.num_rows)
        longest = pc.max(pc.binary_length(staged["properties"])).as_py()
        if longest > PROPERTIES_SIZE_MAX_BYTES:
            raise RecordTooLargeError("properties", longest, PROPERTIES_SIZE_MAX_BYTES)
    return pa.RecordBatch.from_pydict(staged)


def _completed(batch: Any) -> Any:
    """Return a staged batch with all columns."""
    for name in _ABSENT:
        if name not in batch.schema.names:
            batch = batch.append_column(name, _absent(name, batch.num_rows))
    return batch


@lru_cache(maxsize=len(_ABSENT))
def _absent(name: str, row_count: int) -> Any:
    """Return a column of default values."""
    return pa.repeat(_ABSENT[name], row_count)


def _check_texts(given: dict[str, Any]) -> None:
    for name in ("keys", "tags"):
        if name in given and _holds_separator(given[name]):
            raise IllegalMessageError(f"{name}: holds a separator of properties, 0x01 or 0x02, in a row")
    if "properties" in given:
        for part in (given["properties"].keys, given["properties"].items):
            if part.null_count or pc.any(pc.equal(pc.binary_length(part), 0)).as_py():
                raise IllegalMessageError("properties: a name or a value is empty or null in a row")
            if _holds_separator(part):
                raise IllegalMessageError("properties: hold a separator, 0x01 or 0x02, in a row")


def _holds_separator(column: Any) -> bool:
    return any(pc.any(pc.match_substring(column, mark)).as_py() for mark in _SEPARATORS)


def _take_names(given: dict[str, Any]) -> None:
    """Move tags and keys from the properties to their columns, where these are null, and drop the digest.

    All batches of a task must have the same columns, so `keys` is added even if no row has keys.
    """
    column = given.get("properties")
    if column is None:
        return
    given.setdefault("keys", pa.nulls(len(column), pa.string()))
    if not pc.any(pc.is_in(column.keys, pa.array([*_NAMED, _DIGEST]))).as_py():
        return
    rows = [dict(pairs or ()) for pairs in column.to_pylist()]
    for name, own in _NAMED.items():
        taken = [row.pop(name, None) for row in rows]
        column_values = given[own].to_pylist() if own in given else [None] * len(rows)
        merged = [one or other for one, other in zip(column_values, taken, strict=True)]
        given[own] = pa.array(merged, pa.string())
    for row in rows:
        row.pop(_DIGEST, None)
    given["properties"] = pa.array([list(row.items()) for row in rows], _FIELDS["properties"])


def _stored_form(given: dict[str, Any], row_count: int) -> Any:
    """Return tags, keys and properties encoded as in a record: name 0x01 value 0x02."""
    parts = [pa.repeat(pa.scalar("", pa.string()), row_count)]
    for name, own in _NAMED.items():
        if own in given:
            text = pc.fill_null(given[own], "")
            whole = pc.binary_join_element_wise(f"{name}\x01", text, "\x02", "")
            parts.append(pc.if_else(pc.equal(pc.binary_length(text), 0), "", whole))
    if "properties" in given:
        column = given["properties"]
        pairs = pc.binary_join_element_wise(column.keys, "\x01", column.items, "\x02", "")
        joined = pc.binary_join(pa.ListArray.from_arrays(column.offsets, pairs), "")
        parts.append(pc.if_else(column.is_null(), "", joined))
    return pc.binary_join_element_wise(*parts, "").cast(pa.binary())
