"""Map the part of a log that a partition needs.

Between plan and read, retention may have deleted the first files, and an archive may have compressed some.
"""

from dataclasses import replace

from pyledger._core import LogView, MappedFile
from pyledger.arrow.scan_plan import MAX_OFFSET, LogRange, Partition
from pyledger.errors import DataLostError
from pyledger.store.files.folder import StoreFolder, read_with_retries
from pyledger.store.queues.unit_views import units_array


def map_partition(partition: Partition) -> LogView:
    """Map exactly the files that a partition needs.

    Raises:
        DataLostError: the first of them were deleted since the plan was made.
        StoreNotFoundError: the store no longer exists.
        StoreIOError: a file cannot be read.
    """
    low, high = _extent(partition)
    return read_with_retries(partition.path, lambda folder: _map(folder, low, high, partition))


def left_of(partition: Partition) -> Partition:
    """Return the part of a partition that still exists, if files were deleted since the plan was made."""
    begin = read_with_retries(partition.path, _begin_of)
    if begin <= _extent(partition)[0]:
        return partition
    if isinstance(partition, LogRange):
        return replace(partition, start_offset=min(begin, partition.end_offset))
    units = units_array(partition.units)
    kept = units[units["physical_offset"] >= begin]
    return replace(partition, units=kept.tobytes(), size_bytes=int(kept["size_bytes"].sum()))


def _extent(partition: Partition) -> tuple[int, int]:
    """Return the physical offsets (bytes, half open) between which its records start; equal if none."""
    if isinstance(partition, LogRange):
        return partition.start_offset, max(partition.start_offset, partition.end_offset)
    offsets = units_array(partition.units)["physical_offset"]
    return (int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else (0, 0)


def _begin_of(folder: StoreFolder) -> int:
    """Return the physical offset (bytes) at which the log begins; MAX_OFFSET if there is no log."""
    return folder.log_files[0].start_offset if folder.log_files else MAX_OFFSET


def _map(folder: StoreFolder, low: int, high: int, partition: Partition) -> LogView:
    begin, size_bytes = _begin_of(folder), folder.log_file_size_bytes
    if low < min(begin, high):
        gone = f"bytes {low} to {min(begin, high)} of the log were deleted since the read was planned"
        raise DataLostError(partition.path, gone, "plan again, or in Spark set failOnDataLoss=false")
    files: list[MappedFile] = []
    try:
        files.extend(
            MappedFile.open(file.path, size_bytes=size_bytes)
            for file in folder.log_files
            if file.start_offset < high and file.start_offset + size_bytes > low
        )
        return LogView(files, partition.end_offset)
    except BaseException:
        for opened in files:
            opened.close()
        raise
