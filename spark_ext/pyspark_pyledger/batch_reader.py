"""The reader that runs in Spark's Python workers: one partition to Arrow record batches."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyledger import arrow
from pyledger.arrow import Partition, Skipped
from pyspark_pyledger.options import ReadOptions
from pyspark_pyledger.partitions import AnyPartition, BrokerRange, LedgerPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyledger.spark")


class BatchReader(DataSourceReader):
    """Reads the partitions that were planned when the data frame was made."""

    def __init__(self, schema: StructType, parts: list[AnyPartition], options: ReadOptions) -> None:
        self._schema = schema
        self._parts = parts
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the plan: each task receives its own partition separately."""
        return {**self.__dict__, "_parts": []}

    def partitions(self) -> list[InputPartition]:
        """The planned partitions. Spark wants a list."""
        return [LedgerPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one partition."""
        return read_batches(partition, self._schema, self._options)


def read_batches(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator["pa.RecordBatch"]:
    """The rows of one partition, in batches that carry exactly Spark's schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(partition, LedgerPartition):
        # Spark passes its own class when there are no partitions.
        return iter(())
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    if isinstance(partition.value, BrokerRange):
        from pyspark_pyledger.broker_tail import read_range

        return read_range(partition.value, arrow_schema, options)
    part = partition.value if options.fail_on_data_loss else _left_of(partition.value)
    batches: Iterator[Any] = arrow.read_partition(
        part,
        schema=arrow_schema,
        batch_rows=options.batch_rows,
        decompress=options.decompress,
        check_crcs=options.check_crcs,
        on_corrupt=options.on_corrupt,
        on_skip=_report,
    )
    return batches


def _left_of(part: Partition) -> Partition:
    """The part of a partition that still exists, for failOnDataLoss=false."""
    left = arrow.left_of(part)
    if left is not part:
        lost_bytes = part.size_bytes - left.size_bytes
        log.warning("%s: %d bytes were deleted since the read was planned", part.path, lost_bytes)
    return left


def _report(skipped: Skipped) -> None:
    """Log skipped bytes on the worker's stderr: a Python source cannot return counts to Spark."""
    log.warning(
        "skipped %d damaged bytes at physical offset %d: %s",
        skipped.size_bytes,
        skipped.physical_offset,
        skipped.problem,
    )
