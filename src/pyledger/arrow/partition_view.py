"""Map the part of a log that a partition needs.

Between plan and read, retention may have deleted the first files, and an archive may have compressed some.
"""

from dataclasses import replace

from pyledger._core import LogView, MappedFile
from pyledger.arrow.scan_plan import MAX_OFFSET, LogRange, Partition
from pyledger.errors import DataLostError
from pyledger.store.files.folder import StoreFolder, read_with_retries
from pyledger.store.queues.units import Units


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
    units = Units(partition.units)
    kept = [number for number, place in enumerate(units.physical_offsets) if place >= begin]
    rest = Units(b"".join(units[number : number + 1].raw for number in kept))
    return replace(partition, units=rest.raw, size_bytes=sum(rest.sizes))


def _extent(partition: Partition) -> tuple[int, int]:
    """Return the physical offsets (bytes, half open) between which its records start; equal if none."""
    if isinstance(partition, LogRange):
        return partition.start_offset, max(partition.start_offset, partition.end_offset)
    offsets = Units(partition.units).physical_offsets
    return (min(offsets), max(offsets) + 1) if len(offsets) else (0, 0)


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
