"""Settings of the log of a DLedger node. A default that differs from upstream's is explained at its field.

Source: DLedger DLedgerConfig.java.
"""

import os

from pyledger.config.fields import check, setting, settings_class
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
INDEX_UNIT_BYTES = 32


@settings_class
class DLedgerStoreConfig:
    """How a member of a DLedger group keeps its log."""

    store_type: str = setting("file", choices={"file": "FILE", "memory": "MEMORY"}, upstream="storeType")
    """`memory` keeps entries only in memory; all members must use it, or none. A member that stops loses its
    entries."""

    memory_size_bytes_max: int = setting(1 << 30, unit="bytes", range=(1 << 16, 1 << 50), upstream=None)
    """Bytes of entries in memory above which appends are rejected. Upstream has no limit."""

    data_store_path: str = setting("", upstream="dataStorePath")
    """Folders of the data files, separated by `,`; new files are created in each in rotation. Empty: `data`
    in the node's folder."""

    read_only_data_store_dirs: str = setting("", upstream="readOnlyDataStoreDirs")
    """Further folders with data files, separated by `,`, in which no files are created."""

    data_file_size_bytes: int = setting(
        1 << 30, unit="bytes", range=(256, INT_MAX), upstream="mappedFileSizeForEntryData"
    )
    """Size of one data file. The same on all members, and fixed for the life of a folder."""

    index_file_size_bytes: int = setting(
        INDEX_UNIT_BYTES * 5 * 1024 * 1024,
        unit="bytes",
        range=(INDEX_UNIT_BYTES, INT_MAX),
        upstream="mappedFileSizeForEntryIndex",
    )
    """Size of one index file, a multiple of 32. Fixed for the life of a folder."""

    seal_entries: bool = setting(True, upstream=None)
    """Fill the two checksum fields of entries that have none, and verify them at every read. Upstream writes
    0."""

    check_point_interval_ms: int = setting(
        3000, unit="ms", range=(100, 3_600_000), upstream="checkPointInterval"
    )
    """Interval at which the committed index is written to disk."""

    file_reserved_hours: int = setting(72, unit="hours", range=(1, 1 << 20), upstream="fileReservedHours")
    """Time since its last change after which a data file expires."""

    delete_when: str = setting("04", upstream="deleteWhen")
    """Hours of the day at which expired files are deleted: local time, separated by `;`."""

    disk_ratio_to_check_expired: int = setting(
        70, unit="percent", range=(10, 99), upstream="diskSpaceRatioToCheckExpired"
    )
    """Disk usage above which expired files are deleted at any hour."""

    disk_ratio_to_force_clean: int = setting(
        85, unit="percent", range=(50, 99), upstream="diskSpaceRatioToForceClean"
    )
    """Disk usage above which files are deleted whatever their age. At 5 points more, but at most 95, appends
    are rejected."""

    disk_force_clean_enabled: bool = setting(True, upstream="enableDiskForceClean")
    """Whether files may be deleted before they expire."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
        if self.index_file_size_bytes % INDEX_UNIT_BYTES:
            raise ConfigError("index_file_size_bytes", f"is not a multiple of {INDEX_UNIT_BYTES}")
        _ = self.delete_hours
        if self.read_only_data_paths and not set(self.data_paths) - set(self.read_only_data_paths):
            raise ConfigError(
                "read_only_data_store_dirs", "leaves no folder of `data_store_path` for new files"
            )

    @property
    def data_paths(self) -> tuple[str, ...]:
        """The folders of `data_store_path`, in order; empty: the node's own folder."""
        return split_paths(self.data_store_path)

    @property
    def read_only_data_paths(self) -> tuple[str, ...]:
        """The folders of `read_only_data_store_dirs`."""
        return split_paths(self.read_only_data_store_dirs)

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of `delete_when`."""
        hours = [part.strip() for part in self.delete_when.split(";") if part.strip()]
        if not all(hour.isascii() and hour.isdecimal() and int(hour) < 24 for hour in hours):
            raise ConfigError("delete_when", f"{self.delete_when!r} is not a list of hours")
        return tuple(int(hour) for hour in hours)

    @property
    def disk_full_percent(self) -> int:
        """Disk usage above which appends are rejected, percent."""
        return min(95, self.disk_ratio_to_force_clean + 5)


def split_paths(text: str) -> tuple[str, ...]:
    """Folders of a list, each once, in the order of their names."""
    return tuple(sorted({os.path.normpath(part.strip()) for part in text.split(",") if part.strip()}))
