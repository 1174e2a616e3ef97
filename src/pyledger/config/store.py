"""Settings of one store. A default that differs from upstream's is explained at its field.

Source: RocketMQ store/.../MessageStoreConfig.java.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Self

from pyledger.config.fields import build, check, setting, settings_class
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
HOUR_MS = 3_600_000
CONSUME_QUEUE_UNIT_BYTES = 20
BATCH_UNIT_BYTES = 46


@settings_class
class StoreConfig:
    """How a store keeps its commit log and the files derived from it."""

    mapped_file_size_bytes: int = setting(
        1 << 30, unit="bytes", range=(4096, INT_MAX), upstream="mappedFileSizeCommitLog"
    )
    """Size of one commit-log file. Fixed for the life of a store folder."""

    first_chunk_bytes: int = setting(64 << 20, unit="bytes", range=(1 << 20, INT_MAX), upstream=None)
    """Bytes of a new commit-log file whose disk blocks and pages are allocated ahead. The rest follows in
    chunks of 64 MiB as the file fills. A file that is ready but not yet in use occupies this much memory."""

    consume_queue_file_size_bytes: int = setting(
        6_000_000, unit="bytes", range=(20, INT_MAX), upstream="mappedFileSizeConsumeQueue"
    )
    """Size of one consume-queue file, a multiple of 20. Fixed for the life of a store folder."""

    batch_consume_queue_file_size_bytes: int = setting(
        13_800_000, unit="bytes", range=(46, INT_MAX), upstream="mapperFileSizeBatchConsumeQueue"
    )
    """Size of one batch-consume-queue file, a multiple of 46. Fixed for the life of a store folder."""

    store_host: str = setting("127.0.0.1", upstream="brokerIP1")
    """Host in records and message ids: an IPv4 or IPv6 literal."""

    store_port: int = setting(10911, unit="ports", range=(0, 65535), upstream="listenPort")
    """Port in records and message ids."""

    max_message_size_bytes: int = setting(
        4 << 20, unit="bytes", range=(10, INT_MAX - (64 << 10)), upstream="maxMessageSize"
    )
    """Longest body. The whole record may be 65,536 bytes longer."""

    crc_property: bool = setting(False, upstream="enabledAppendPropCRC")
    """End every record with a CRC over the whole record, in the property `__CRC32#`."""

    check_crc_on_recover: bool = setting(True, upstream="checkCRCOnRecover")
    """After a clean shutdown, check the CRC of every body in the last log file when the store is opened. Off:
    check only lengths and offsets, which takes a fraction of the time. After an unclean shutdown every CRC is
    checked in any case."""

    flush_disk_type: str = setting(
        "async", choices={"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}, upstream="flushDiskType"
    )
    """`async`: a put returns when the message is in the page cache; a power failure loses what was not
    flushed. `sync`: a put returns when the message is on disk; concurrent puts share a flush."""

    flush_policy: str = setting("rocketmq", choices={"rocketmq": "", "bounded": ""}, upstream=None)
    """When an async store flushes. `rocketmq`: at each interval, if `flush_least_pages` are dirty or the
    thorough interval has passed. `bounded`: as soon as `flush_bound_bytes` are dirty, and at each interval
    whatever is dirty."""

    flush_interval_ms: int = setting(500, unit="ms", range=(1, HOUR_MS), upstream="flushIntervalCommitLog")
    """Interval at which the commit log is checked for data to flush."""

    flush_least_pages: int = setting(
        4, unit="pages of 4096 bytes", range=(0, 1 << 20), upstream="flushCommitLogLeastPages"
    )
    """Pages filled since the last flush that trigger a flush; 0: flush whenever anything is dirty."""

    flush_thorough_interval_ms: int = setting(
        10_000, unit="ms", range=(0, HOUR_MS), upstream="flushCommitLogThoroughInterval"
    )
    """Interval after which everything dirty is flushed."""

    flush_bound_bytes: int = setting(16 << 10, unit="bytes", range=(1, INT_MAX), upstream=None)
    """Policy `bounded`: dirty bytes that trigger a flush."""

    sync_flush_timeout_ms: int = setting(5_000, unit="ms", range=(1, HOUR_MS), upstream="syncFlushTimeout")
    """How long a put into a `sync` store waits for its flush before it reports a timeout."""

    transient_store_pool: bool = setting(False, upstream="transientStorePoolEnable")
    """Append to buffers outside the page cache and copy from them. If the process crashes, messages that were
    not copied are lost; without the pool, a process crash loses none. The file in use and the next one each
    have a buffer of the file's size."""

    commit_interval_ms: int = setting(200, unit="ms", range=(1, HOUR_MS), upstream="commitIntervalCommitLog")
    """Transient pool only: interval at which buffers are copied to the page cache."""

    commit_least_pages: int = setting(
        4, unit="pages of 4096 bytes", range=(0, 1 << 20), upstream="commitCommitLogLeastPages"
    )
    """Transient pool only: filled pages that trigger a copy."""

    commit_thorough_interval_ms: int = setting(
        200, unit="ms", range=(0, HOUR_MS), upstream="commitCommitLogThoroughInterval"
    )
    """Transient pool only: interval after which everything in the buffers is copied."""

    consume_queue_flush_interval_ms: int = setting(
        1_000, unit="ms", range=(1, HOUR_MS), upstream="flushIntervalConsumeQueue"
    )
    """Interval at which consume queues are checked for data to flush."""

    consume_queue_flush_least_pages: int = setting(
        2, unit="pages of 4096 bytes", range=(0, 1 << 20), upstream="flushConsumeQueueLeastPages"
    )
    """Pages of one consume queue filled since its last flush that trigger a flush."""

    consume_queue_flush_thorough_interval_ms: int = setting(
        60_000, unit="ms", range=(0, HOUR_MS), upstream="flushConsumeQueueThoroughInterval"
    )
    """Interval after which all consume queues are flushed and the checkpoint is written."""

    index_enabled: bool = setting(True, upstream="messageIndexEnable")
    """Maintain index files, which find messages by key."""

    index_slots: int = setting(5_000_000, unit="slots", range=(1, 1 << 28), upstream="maxHashSlotNum")
    """Hash slots of one index file. Fixed for the life of a store folder."""

    index_entries: int = setting(20_000_000, unit="entries", range=(2, 1 << 26), upstream="maxIndexNum")
    """Entries of one index file; the first is never used. Fixed for the life of a store folder."""

    retention_hours: int = setting(72, unit="hours", range=(0, 1 << 20), upstream="fileReservedTime")
    """Age at which a commit-log file may be deleted. The last file is never deleted."""

    delete_when: str = setting("04", upstream="deleteWhen")
    """Hours of the day at which expired files are deleted: two digits each, local time, separated by `;`."""

    delete_files_max: int = setting(10, unit="files", range=(1, 1 << 16), upstream="deleteFileBatchMax")
    """Commit-log files that one round of cleaning deletes at most."""

    clean_interval_ms: int = setting(10_000, unit="ms", range=(1, HOUR_MS), upstream="cleanResourceInterval")
    """Interval between two rounds of cleaning."""

    clean_forcibly: bool = setting(True, upstream="cleanFileForciblyEnable")
    """When the disk fills up, delete the oldest files whatever their age."""

    disk_used_percent_max: int = setting(75, unit="percent", range=(10, 95), upstream="diskMaxUsedSpaceRatio")
    """Disk usage above which expired files are deleted at any hour."""

    disk_forced_percent: int = setting(
        85, unit="percent", range=(30, 85), upstream="diskSpaceCleanForciblyRatio"
    )
    """Disk usage above which the oldest files are deleted whatever their age."""

    disk_warning_percent: int = setting(
        90, unit="percent", range=(35, 90), upstream="diskSpaceWarningLevelRatio"
    )
    """Disk usage above which the store also rejects messages."""

    def __post_init__(self) -> None:
        check(self)
        for name, unit_bytes in (
            ("consume_queue_file_size_bytes", CONSUME_QUEUE_UNIT_BYTES),
            ("batch_consume_queue_file_size_bytes", BATCH_UNIT_BYTES),
        ):
            value = getattr(self, name)
            if value % unit_bytes:
                raise ConfigError(name, f"{value} is not a multiple of {unit_bytes}")
        if 40 + 4 * self.index_slots + 20 * self.index_entries > INT_MAX:
            raise ConfigError(
                "index_entries", "an index file would exceed 2 GiB", "take fewer entries or slots"
            )
        self.delete_hours()
        try:
            ip_address(self.store_host)
        except ValueError:
            raise ConfigError("store_host", f"{self.store_host!r} is not an IPv4 or IPv6 address") from None

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Return settings from values by our names or upstream's, such as `{"fileReservedTime": "48"}`.

        Args:
            properties: Text is converted to the type of the setting, upstream's words and units to ours.

        Raises:
            ConfigError: a name is unknown or given in both spellings, or a value is out of range.
        """
        return build(cls, properties)

    def delete_hours(self) -> tuple[int, ...]:
        """`delete_when` as numbers, 0 to 23.

        Raises:
            ConfigError: it is not a list of hours.
        """
        hours = [part.strip() for part in self.delete_when.split(";") if part.strip()]
        if not all(part.isascii() and part.isdecimal() and int(part) < 24 for part in hours):
            raise ConfigError(
                "delete_when", f"{self.delete_when!r} is not a list of hours", 'write "04" or "04;16"'
            )
        return tuple(int(part) for part in hours)
