"""Settings of the log of a DLedger node. Defaults are upstream's; where not, the docstring says why.

Source: DLedger DLedgerConfig.java.
"""

import os
from dataclasses import dataclass

from pyledger.config.fields import check, setting
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
INDEX_UNIT_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerStoreConfig:
    """How a member of a DLedger group keeps its log."""

    store_type: str = setting("file", choices={"file": "FILE", "memory": "MEMORY"}, upstream="storeType")
    """`memory` keeps entries in the process alone; all members do, or none. One that ends loses its own."""

    memory_size_bytes_max: int = setting(1 << 30, unit="bytes", range=(1 << 16, 1 << 50), upstream=None)
    """Entries in memory, beyond which appends are refused. Upstream: no limit."""

    data_store_path: str = setting("", upstream="dataStorePath")
    """Folders of the data files, `,` between them; a new file goes to one after the other. Empty is `data` in
    the node's folder."""

    read_only_data_store_dirs: str = setting("", upstream="readOnlyDataStoreDirs")
    """More folders with data files, `,` between them; they get no new ones."""

    data_file_size_bytes: int = setting(
        1 << 30, unit="bytes", range=(256, INT_MAX), upstream="mappedFileSizeForEntryData"
    )
    """Size of one data file; the same on all members, and fixed for the life of a folder."""

    index_file_size_bytes: int = setting(
        INDEX_UNIT_BYTES * 5 * 1024 * 1024,
        unit="bytes",
        range=(INDEX_UNIT_BYTES, INT_MAX),
        upstream="mappedFileSizeForEntryIndex",
    )
    """Size of one index file, a multiple of 32. Fixed for the life of a folder."""

    seal_entries: bool = setting(True, upstream=None)
    """Fill the two checksum fields of entries that have none, and check them at every read. Upstream: 0."""

    check_point_interval_ms: int = setting(
        3000, unit="ms", range=(100, 3_600_000), upstream="checkPointInterval"
    )
    """How often the committed index is written down."""

    file_reserved_hours: int = setting(72, unit="hours", range=(1, 1 << 20), upstream="fileReservedHours")
    """Age after its last change at which a data file may go."""

    delete_when: str = setting("04", upstream="deleteWhen")
    """Local hours at which files that old go, `;` between them."""

    disk_ratio_to_check_expired: int = setting(
        70, unit="percent", range=(10, 99), upstream="diskSpaceRatioToCheckExpired"
    )
    """A disk fuller than this lets files that old go at any hour."""

    disk_ratio_to_force_clean: int = setting(
        85, unit="percent", range=(50, 99), upstream="diskSpaceRatioToForceClean"
    )
    """A disk fuller than this lets files go whatever their age; 5 more (at most 95) refuse appends."""

    disk_force_clean_enabled: bool = setting(True, upstream="enableDiskForceClean")
    """Whether files may go before their age."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
        if self.index_file_size_bytes % INDEX_UNIT_BYTES:
            raise ConfigError("index_file_size_bytes", f"is no multiple of {INDEX_UNIT_BYTES}")
        _ = self.delete_hours
        if self.read_only_data_paths and not set(self.data_paths) - set(self.read_only_data_paths):
            raise ConfigError(
                "read_only_data_store_dirs", "leaves no folder of `data_store_path` for new files"
            )

    @property
    def data_paths(self) -> tuple[str, ...]:
        """`data_store_path` as folders, in their order; none: the node's own."""
        return split_paths(self.data_store_path)

    @property
    def read_only_data_paths(self) -> tuple[str, ...]:
        """`read_only_data_store_dirs` as folders."""
        return split_paths(self.read_only_data_store_dirs)

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """`delete_when` as numbers."""
        hours = [part.strip() for part in self.delete_when.split(";") if part.strip()]
        if not all(hour.isascii() and hour.isdecimal() and int(hour) < 24 for hour in hours):
            raise ConfigError("delete_when", f"{self.delete_when!r} is no list of hours")
        return tuple(int(hour) for hour in hours)

    @property
    def disk_full_percent(self) -> int:
        """How full a disk refuses appends (percent)."""
        return min(95, self.disk_ratio_to_force_clean + 5)


def split_paths(text: str) -> tuple[str, ...]:
    """Folders of a list, each once, in the order of their names."""
    return tuple(sorted({os.path.normpath(part.strip()) for part in text.split(",") if part.strip()}))
