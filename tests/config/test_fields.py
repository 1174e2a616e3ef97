import dataclasses

import pytest

from pyledger.config.fields import settings_of
from pyledger.config.store import StoreConfig
from pyledger.errors import ConfigError

# Upstream's table of defaults, by its names: a change of ours must be made here too, on purpose.
UPSTREAM_DEFAULTS = {
    "mappedFileSizeCommitLog": 1073741824,
    "mappedFileSizeConsumeQueue": 6000000,
    "mapperFileSizeBatchConsumeQueue": 300000 * 46,
    "flushDiskType": "async",
    "flushIntervalCommitLog": 500,
    "commitIntervalCommitLog": 200,
    "flushCommitLogLeastPages": 4,
    "commitCommitLogLeastPages": 4,
    "flushConsumeQueueLeastPages": 2,
    "flushCommitLogThoroughInterval": 10000,
    "commitCommitLogThoroughInterval": 200,
    "flushConsumeQueueThoroughInterval": 60000,
    "flushIntervalConsumeQueue": 1000,
    "cleanResourceInterval": 10000,
    "deleteWhen": "04",
    "fileReservedTime": 72,
    "deleteFileBatchMax": 10,
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85,
    "diskSpaceWarningLevelRatio": 90,
    "maxMessageSize": 4194304,
    "checkCRCOnRecover": True,
    "messageIndexEnable": True,
    "maxHashSlotNum": 5000000,
    "maxIndexNum": 20000000,
    "syncFlushTimeout": 5000,
    "transientStorePoolEnable": False,
    "enabledAppendPropCRC": False,
    "cleanFileForciblyEnable": True,
    "brokerIP1": "127.0.0.1",
    "listenPort": 10911,
}


def test_defaults_equal_upstreams() -> None:
    assert {s.upstream: s.default for s in settings_of(StoreConfig) if s.upstream} == UPSTREAM_DEFAULTS


def test_from_properties_takes_both_names_and_text() -> None:
    config = StoreConfig.from_properties(
        {"fileReservedTime": "48", "flushDiskType": "SYNC_FLUSH", "index_enabled": "no"}
    )
    assert config == StoreConfig(retention_hours=48, flush_disk_type="sync", index_enabled=False)
    assert dataclasses.replace(config, retention_hours=1).flush_disk_type == "sync"


@pytest.mark.parametrize(
    ("options", "field", "says"),
    [
        ({"flush_intervall_ms": 1}, "flush_intervall_ms", "did you mean flush_interval_ms?"),
        ({"mappedFileSizeComitLog": 1}, "mappedFileSizeComitLog", "did you mean mappedFileSizeCommitLog?"),
        ({"xyz": 1}, "xyz", "docs/reference/config.md"),
        (
            {"retention_hours": 1, "fileReservedTime": 1},
            "fileReservedTime",
            "same setting as retention_hours",
        ),
        ({"mapped_file_size_bytes": 1}, "mapped_file_size_bytes", "4096 to 2147483647 bytes"),
        ({"mapped_file_size_bytes": 1 << 31}, "mapped_file_size_bytes", "out of range"),
        ({"retention_hours": True}, "retention_hours", "not of type int"),
        ({"retention_hours": 1.0}, "retention_hours", "not of type int"),
        ({"retention_hours": "soon"}, "retention_hours", "not a whole number"),
        ({"index_enabled": "maybe"}, "index_enabled", "neither true nor false"),
        ({"flush_disk_type": "later"}, "flush_disk_type", "async, sync"),
        ({"consume_queue_file_size_bytes": 6_000_001}, "consume_queue_file_size_bytes", "multiple of 20"),
        (
            {"batch_consume_queue_file_size_bytes": 60},
            "batch_consume_queue_file_size_bytes",
            "multiple of 46",
        ),
        ({"index_slots": 1 << 28, "index_entries": 1 << 26}, "index_entries", "2 GiB"),
        ({"delete_when": "24"}, "delete_when", "list of hours"),
        ({"delete_when": "-1"}, "delete_when", "list of hours"),
        ({"store_host": "localhost"}, "store_host", "not an IPv4 or IPv6 address"),
    ],
)
def test_wrong_option_names_field_and_remedy(options: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreConfig.from_properties(options)
    assert caught.value.field == field
    assert says in str(caught.value)


def test_every_bound_is_itself_allowed() -> None:
    for one in settings_of(StoreConfig):
        multiple = {"consume_queue_file_size_bytes": 20, "batch_consume_queue_file_size_bytes": 46}.get(
            one.name, 1
        )
        for bound in one.range or ():
            value = bound - bound % multiple
            assert getattr(StoreConfig(**{one.name: value}), one.name) == value


def test_delete_hours_reads_a_list() -> None:
    assert StoreConfig(delete_when="04; 16;").delete_hours() == (4, 16)
    assert StoreConfig(delete_when="").delete_hours() == ()
