"""The options and the columns of a write, and the errors that name the right one."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import DataType, StructType

from pyledger.config.store import StoreConfig
from pyledger.errors import ConfigError
from pyspark_pyledger.options import TABLE_PROPERTIES, local_path, without_scheme

QUEUE_COUNT = 4
_NAMES = ("path", "topic", "queueCount", "sinkId", "mappedFileSizeCommitLog", "checkpointLocation")
_TYPES = {
    "topic": ("string",),
    "queueId": ("tinyint", "smallint", "int", "bigint"),
    "keys": ("string",),
    "tags": ("string",),
    "body": ("binary", "string"),
    "properties": ("map<string,string>",),
    "bornTimestamp": ("timestamp",),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write, checked."""

    path: str
    topic: str | None = None
    """Replaces the column `topic`."""
    queue_count: int = QUEUE_COUNT
    sink_id: str | None = None
    checkpoint: str | None = None
    log_file_size_bytes: int | None = None
    """For a new store; None: upstream's default, 1 GiB."""


def option_names() -> tuple[str, ...]:
    """Every option of a write, in its own spelling."""
    return _NAMES


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write.

    Raises:
        ConfigError: one is unknown, missing or out of range.
    """
    spelling = {name.lower(): name for name in _NAMES}
    given: dict[str, str] = {}
    for raw, text in options.items():
        if raw.lower() == "truncate" or raw.lower() in TABLE_PROPERTIES:
            continue
        if raw.lower() not in spelling:
            raise ConfigError(raw, "is not an option of a write", f"known are {', '.join(_NAMES)}")
        given[spelling[raw.lower()]] = text
    if "path" not in given:
        raise ConfigError("path", "is missing", 'name the store folder: .save("…") or .option("path", "…")')
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", given.get("sinkId", "x")):
        raise ConfigError("sinkId", f"{given['sinkId']!r} is not a name", "use letters, digits, _, - and .")
    sizes = {
        name: int_of(name, given[name]) for name in ("queueCount", "mappedFileSizeCommitLog") if name in given
    }
    if "mappedFileSizeCommitLog" in sizes:
        _check_file_size("mappedFileSizeCommitLog", sizes["mappedFileSizeCommitLog"])
    return WriteOptions(
        path=local_path(given["path"]),
        topic=given.get("topic"),
        queue_count=sizes.get("queueCount", QUEUE_COUNT),
        sink_id=given.get("sinkId"),
        checkpoint=given.get("checkpointLocation"),
        log_file_size_bytes=sizes.get("mappedFileSizeCommitLog"),
    )


def int_of(name: str, text: str) -> int:
    """Parse a count of at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(name, f"{text!r} is not a whole number of at least 1")
    return int(text)


def _check_file_size(name: str, size_bytes: int) -> None:
    """Check the size of log files before tasks stage anything."""
    try:
        StoreConfig(mapped_file_size_bytes=size_bytes)
    except ConfigError as error:
        raise ConfigError(name, error.problem, error.remedy) from error


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check that a data frame has the columns of messages.

    Raises:
        ConfigError: a column is missing, unknown or of another type.
    """
    held: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    for name, kind in held.items():
        if name not in _TYPES:
            raise ConfigError(
                name, "is not a column that can be written", f"drop it; columns are {', '.join(_TYPES)}"
            )
        if kind.simpleString() not in _TYPES[name]:
            raise ConfigError(name, f"is {kind.simpleString()}, not {' or '.join(_TYPES[name])}", "cast it")
    if "body" not in held:
        raise ConfigError("body", "there is no such column", "rename the column with the content to `body`")
    if options.topic is None and "topic" not in held:
        raise ConfigError("topic", "there is neither the option nor a column", 'use .option("topic", "…")')


def sink_name(options: WriteOptions) -> str:
    """Return a name that identifies a stream among all that write to the same store, across restarts.

    Raises:
        ConfigError: neither the options nor the checkpoint give one.
    """
    if options.sink_id is not None:
        return options.sink_id
    if options.checkpoint is None:
        raise ConfigError(
            "checkpointLocation", "is missing", "give it, or sinkId, as an option of the stream"
        )
    try:
        text = Path(without_scheme(options.checkpoint), "metadata").read_text()
        return str(json.loads(text)["id"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            "checkpointLocation",
            f"{options.checkpoint} cannot be read here: {error}",
            "give the stream a name of its own with the option sinkId",
        ) from error
