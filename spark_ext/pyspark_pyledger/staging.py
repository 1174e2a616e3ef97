"""Rows that tasks have written and nobody can read yet: Arrow files beside the log.

They lie in `<store>/spark/<job>/`, on the disk of the store, one file for each task that finished. What a
task left that failed is swept away with them.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyledger.atomic_file import flush_folder
from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.store.folder import STAGING_FOLDER

BODY_BYTES_MAX = 4 << 20
PROPERTIES_BYTES_MAX = 32_767
"""Names, values and two separators for each."""
TOPIC_CHARS_MAX = 127
_SEPARATORS = "[\x01\x02]"
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
    """What one task wrote."""

    name: str
    row_count: int
    topics: tuple[str, ...]


def staging_folder(store: str, job: str) -> Path:
    """Where the tasks of a job put their rows."""
    return Path(store) / STAGING_FOLDER / job


def stage_rows(folder: Path, batches: Iterable[Any], topic: str | None) -> StagedFile:
    """Write the rows of one task to a file, all checked: what is staged can be appended.

    Args:
        folder: Of the job.
        batches: Arrow record batches with the columns of messages.
        topic: The topic of all; None: the column says it.

    Raises:
        IllegalMessageError: a row cannot be a message; says which column and why.
        RecordTooLargeError: its body or its properties are too large.

    Durability: on return the file survives a power cut.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{uuid.uuid4().hex}.arrow"
    count, topics = 0, set() if topic is None else {topic}
    sink, writer = None, None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = _checked(batch, topic)
            if topic is None:
                topics |= set(pc.unique(rows.column("topic")).to_pylist())
            if writer is None:
                sink = (folder / name).open("xb")
                writer = pa.ipc.new_file(sink, rows.schema)
            writer.write_batch(rows)
            count += rows.num_rows
        if writer is not None and sink is not None:
            writer.close()
            sink.flush()
            os.fsync(sink.fileno())
            flush_folder(folder)
    finally:
        if sink is not None:
            sink.close()
    for one in topics:
        check_topic(one)
    return StagedFile(name if count else "", count, tuple(sorted(topics)))


def read_staged(folder: Path, names: Iterable[str]) -> Iterator[Any]:
    """The rows of staged files, in their order, as Arrow record batches over mapped memory."""
    for name in names:
        with pa.memory_map(str(folder / name)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def sweep(folder: Path) -> None:
    """Remove what a job staged, finished or not."""
    shutil.rmtree(folder, ignore_errors=True)


def check_topic(topic: str) -> None:
    """See that a topic can be called so.

    Raises:
        IllegalMessageError: it cannot.
    """
    if not re.fullmatch(r"[%|a-zA-Z0-9_-]+", topic) or len(topic) > TOPIC_CHARS_MAX:
        raise IllegalMessageError(
            f"topic: {topic!r} is no name of a topic: letters, digits, %, |, _ and -, "
            f"at most {TOPIC_CHARS_MAX} of them"
        )


def _checked(batch: Any, topic: str | None) -> Any:
    """The columns of a batch in the types of staged files."""
    columns: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        if name in batch.schema.names and not (name == "topic" and topic is not None):
            column = batch.column(name)
            columns[name] = column.cast(kind, safe=name != "bornTimestamp")
    for name in ("body", "topic"):
        if name in columns and columns[name].null_count:
            raise IllegalMessageError(f"{name}: is null in a row, and every message needs one")
    longest = pc.max(pc.binary_length(columns["body"])).as_py()
    if longest > BODY_BYTES_MAX:
        raise RecordTooLargeError("body", longest, BODY_BYTES_MAX)
    if "queueId" in columns and (pc.min(columns["queueId"]).as_py() or 0) < 0:
        raise IllegalMessageError("queueId: is below 0 in a row")
    _check_texts(columns, batch.num_rows)
    return pa.RecordBatch.from_pydict(columns)


def _check_texts(columns: dict[str, Any], row_count: int) -> None:
    sizes = pa.repeat(pa.scalar(0, pa.int64()), row_count)
    for name in ("keys", "tags"):
        if name in columns:
            if pc.any(pc.match_substring_regex(columns[name], _SEPARATORS)).as_py():
                raise IllegalMessageError(f"{name}: holds a separator of properties, 0x01 or 0x02, in a row")
            lengths = pc.fill_null(pc.binary_length(columns[name]), 0)
            sizes = pc.add(sizes, pc.add(lengths.cast(pa.int64()), 6))
    if "properties" in columns:
        column = columns["properties"]
        for part in (column.keys, column.items):
            if part.null_count or pc.any(pc.equal(pc.binary_length(part), 0)).as_py():
                raise IllegalMessageError("properties: a name or a value is empty or null in a row")
            if pc.any(pc.match_substring_regex(part, _SEPARATORS)).as_py():
                raise IllegalMessageError("properties: hold a separator, 0x01 or 0x02, in a row")
        texts = [
            sum(len(n.encode()) + len(v.encode()) + 2 for n, v in row or ()) for row in column.to_pylist()
        ]
        sizes = pc.add(sizes, pa.array(texts, pa.int64()))
    longest = pc.max(sizes).as_py()
    if longest > PROPERTIES_BYTES_MAX:
        raise RecordTooLargeError("properties", longest, PROPERTIES_BYTES_MAX)
