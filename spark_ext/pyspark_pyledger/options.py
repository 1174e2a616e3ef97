"""The options of `format("pyledger")`: names, checks, and the errors that name the right one.

Spark hands options over with lower-cased names; here they get their spelling back. Names and meanings follow
Spark's Kafka source where they fit.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pyledger.errors import ConfigError
from pyspark_pyledger.offsets import Offsets, parse_positions

End = Literal["earliest", "latest"]
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

OFFSET_EARLIEST = -2
OFFSET_LATEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read, checked."""

    paths: tuple[str, ...] = ()
    name_servers: str | None = None
    """If given, brokers are read instead of folders."""
    prefer_slave: bool = False
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    topics: tuple[str, ...] | None = None
    topics_pattern: str | None = None
    queues: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    starting_offsets: End | Offsets | None = None
    """None: the earliest for a batch read, the latest for a stream."""
    ending_offsets: End | Offsets = LATEST
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    tags: str | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int | None = None
    fail_on_data_loss: bool = True
    batch_rows: int = 8192
    decompress: bool = False
    check_crcs: bool = True
    on_corrupt: Literal["error", "skip"] = "error"
    include_unindexed: bool = False


def _parse_bool(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise ConfigError(name, f"{text!r} is not a boolean", "use true or false")


def _parse_text(_name: str, text: str) -> str:
    return text


def _parse_count(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(name, f"{text!r} is not a whole number of at least 1")
    return int(text)


def _parse_list(name: str, text: str) -> tuple[str, ...]:
    items = tuple(part.strip() for part in text.split(",") if part.strip())
    if not items:
        raise ConfigError(name, "names nothing", "give names separated by commas")
    return items


def _parse_topic(name: str, text: str) -> tuple[str, ...]:
    if "," in text:
        raise ConfigError(name, f"{text!r} names several topics", "use `topics`")
    return _parse_list(name, text)


def _parse_pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(name, f"{text!r} is not a regular expression: {error}") from error
    return text


def _parse_queues(name: str, text: str) -> tuple[int, ...]:
    items = _parse_list(name, text)
    if not all(item.isdecimal() for item in items):
        raise ConfigError(
            name, f"{text!r} is not a list of queue ids", "give whole numbers separated by commas"
        )
    return tuple(int(item) for item in items)


def _parse_timestamp(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", text):
        raise ConfigError(name, f"{text!r} is not a time", "give milliseconds since 1970-01-01 UTC")
    return int(text)


def _parse_on_corrupt(name: str, text: str) -> str:
    if text not in ("error", "skip"):
        raise ConfigError(name, f"{text!r} is unknown", "use error or skip")
    return text


def _parse_offsets(name: str, text: str) -> End | Offsets:
    """`earliest`, `latest`, or JSON as Kafka's source takes it: {"topic": {"queue id": offset}}."""
    if text in (EARLIEST, LATEST):
        return EARLIEST if text == EARLIEST else LATEST
    remedy = 'use earliest, latest or JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
    try:
        offsets = parse_positions(json.loads(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(name, f"{text!r} cannot be parsed", remedy) from error
    if any(offset < OFFSET_EARLIEST for offset in offsets.values()):
        raise ConfigError(name, f"{text!r} holds something that is not an offset", remedy)
    return offsets


_PARSERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "namesrv": ("name_servers", _parse_text),
    "preferSlave": ("prefer_slave", _parse_bool),
    "accessKey": ("access_key", _parse_text),
    "secretKey": ("secret_key", _parse_text),
    "topic": ("topics", _parse_topic),
    "topics": ("topics", _parse_list),
    "topicsPattern": ("topics_pattern", _parse_pattern),
    "queues": ("queues", _parse_queues),
    "columns": ("columns", _parse_list),
    "startingOffsets": ("starting_offsets", _parse_offsets),
    "endingOffsets": ("ending_offsets", _parse_offsets),
    "startingTimestamp": ("starting_timestamp_ms", _parse_timestamp),
    "endingTimestamp": ("ending_timestamp_ms", _parse_timestamp),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _parse_count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _parse_count),
    "tags": ("tags", _parse_text),
    "minPartitions": ("min_partitions", _parse_count),
    "maxRecordsPerPartition": ("max_records_per_partition", _parse_count),
    "maxBytesPerPartition": ("max_bytes_per_partition", _parse_count),
    "failOnDataLoss": ("fail_on_data_loss", _parse_bool),
    "batchRows": ("batch_rows", _parse_count),
    "decompress": ("decompress", _parse_bool),
    "checkCrcs": ("check_crcs", _parse_bool),
    "onCorrupt": ("on_corrupt", _parse_on_corrupt),
    "includeUnindexed": ("include_unindexed", _parse_bool),
}

_CONFLICTS = (
    ("topic", "topics"),
    ("topic", "topicsPattern"),
    ("topics", "topicsPattern"),
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
)

_ELSEWHERE = {
    "subscribe": "topics",
    "subscribepattern": "topicsPattern",
    "assign": "topics and queues",
    "subexpression": "tags",
    "check.crcs": "checkCrcs",
    "kafka.bootstrap.servers": "namesrv",
    "nameserver": "namesrv",
    "namesrvaddr": "namesrv",
    "includeheaders": "columns=…,properties",
    "queue": "queues",
    "column": "columns",
    "startingoffset": "startingOffsets",
    "endingoffset": "endingOffsets",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "minoffsetspertrigger": "maxOffsetsPerTrigger and the time of the trigger",
    "maxtriggerdelay": "the time of the trigger",
}
"""Options of other sources, and the name to use here."""


TABLE_PROPERTIES = frozenset(
    ("owner", "comment", "provider", "location", "external", "is_managed_location", "collation", "table_type")
)
"""Properties of a table in Spark's catalog, which it passes to the source as options.

Source: Spark sql/catalyst/.../connector/catalog/TableCatalog.java (PROP_*).
"""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def option_names() -> tuple[str, ...]:
    """Every option of a read, in its own spelling."""
    return "path", *_PARSERS


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse and check the options of any read; `check_batch` and `check_stream` check the rest.

    Raises:
        ConfigError: an option is unknown, out of range, or excludes another.
    """
    spelling = {name.lower(): name for name in _PARSERS}
    given: dict[str, Any] = {}
    present: set[str] = set()
    for raw, text in options.items():
        lowered = raw.lower()
        if lowered in ("path", "paths") or lowered in TABLE_PROPERTIES:
            continue
        name = spelling.get(lowered)
        if name is None:
            raise _unknown_option(raw, spelling)
        attribute, parse = _PARSERS[name]
        given[attribute] = parse(name, text)
        present.add(name)
    for one, other in _CONFLICTS:
        if one in present and other in present:
            raise ConfigError(one, f"excludes {other}", "give one of the two")
    found = ReadOptions(paths=_parse_paths(options, at_brokers="namesrv" in present), **given)
    if found.name_servers is not None:
        _check_brokers(found)
    for name in ("preferSlave", "accessKey", "secretKey"):
        if found.name_servers is None and name in present:
            raise ConfigError(name, "is an option for brokers", 'name them: .option("namesrv", "…")')
    return found


def _check_brokers(options: ReadOptions) -> None:
    """See that options fit a read of brokers."""
    if options.paths:
        raise ConfigError("namesrv", "a path is given as well", "read folders or brokers")
    if options.topics is None:
        raise ConfigError("topic", "is missing", "name the topics to read from the brokers")
    for name, given in (
        ("topicsPattern", options.topics_pattern),
        ("maxBytesPerTrigger", options.max_bytes_per_trigger),
        ("maxBytesPerPartition", options.max_bytes_per_partition),
        ("includeUnindexed", options.include_unindexed or None),
        ("onCorrupt", None if options.on_corrupt == "error" else options.on_corrupt),
        ("checkCrcs", None if options.check_crcs else False),
    ):
        if given is not None:
            raise ConfigError(
                name, "is an option for folders", "select by topic, queue and offset at brokers"
            )


def check_batch(options: ReadOptions) -> None:
    """See that options fit a batch read.

    Raises:
        ConfigError: one leaves it empty, or is of streams.
    """
    if options.starting_offsets == LATEST:
        raise ConfigError(
            "startingOffsets", "`latest` leaves a batch read empty", "use earliest or give offsets"
        )
    if options.ending_offsets == EARLIEST:
        raise ConfigError(
            "endingOffsets", "`earliest` leaves a batch read empty", "use latest or give offsets"
        )
    for name, value in (
        ("maxOffsetsPerTrigger", options.max_offsets_per_trigger),
        ("maxBytesPerTrigger", options.max_bytes_per_trigger),
    ):
        if value is not None:
            raise ConfigError(name, "is an option of streams", "a batch read has endingOffsets")


def check_stream(options: ReadOptions) -> None:
    """See that options fit a stream.

    Raises:
        ConfigError: one is of batch reads.
    """
    if options.ending_offsets != LATEST or options.ending_timestamp_ms is not None:
        raise ConfigError(
            "endingOffsets", "a stream has no end", "use trigger(availableNow=True) to stop at the end"
        )
    if options.include_unindexed:
        raise ConfigError("includeUnindexed", "a stream has no offsets for records that are in no queue")


def _parse_paths(options: Mapping[str, str], *, at_brokers: bool) -> tuple[str, ...]:
    """`load("a")` arrives as `path`, `load(["a", "b"])` as a JSON list in `paths`."""
    listed = options.get("paths")
    paths = tuple(json.loads(listed)) if listed else ()
    single = options.get("path")
    if single:
        paths = (single, *paths)
    paths = tuple(map(local_path, paths))
    if not paths and not at_brokers:
        raise ConfigError(
            "path",
            "is missing",
            'name the store folder: .load("…"), or brokers: .option("namesrv", "…"); in SQL use CREATE '
            "TEMPORARY VIEW: Spark drops the OPTIONS of a TABLE whose source is in Python",
        )
    return paths


def without_scheme(path: str) -> str:
    """A path without the scheme that Spark's own paths may have: `file:/data` or `file:///data`."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


def local_path(path: str) -> str:
    """The local path of a store.

    Raises:
        ConfigError: it is of a file system that is not mounted here, or a pattern for names.
    """
    local = without_scheme(path)
    if os.path.exists(local):
        return local
    if _SCHEME.match(local):
        raise ConfigError(
            "path",
            f"{local!r} is not supported: logs are mapped into memory",
            "mount the file system, or copy the folder, and give a local path",
        )
    if any(mark in local for mark in "*?[{"):
        raise ConfigError(
            "path",
            f"{local!r} is not there, and patterns are not supported",
            'give a list, .load(["a", "b"]), or the folder that holds the stores',
        )
    return local


def is_wanted(options: ReadOptions, topic: str, queue_id: int) -> bool:
    """Return whether the options select a queue."""
    if options.topics is not None and topic not in options.topics:
        return False
    if options.topics_pattern is not None and not re.fullmatch(options.topics_pattern, topic):
        return False
    return options.queues is None or queue_id in options.queues


def _unknown_option(raw: str, spelling: Mapping[str, str]) -> ConfigError:
    known = ", ".join(option_names())
    lowered = raw.lower()
    if lowered in _ELSEWHERE:
        return ConfigError(raw, "is not an option here", f"use {_ELSEWHERE[lowered]}")
    close = difflib.get_close_matches(lowered, [*spelling, "path"], n=1)
    remedy = f"did you mean {spelling.get(close[0], close[0])}?" if close else f"known are {known}"
    return ConfigError(raw, "is not an option of this source", remedy)
