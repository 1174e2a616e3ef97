"""A store as Arrow record batches, for pandas, polars, DuckDB and Spark.

from pyledger import arrow

arrow.scan("/data/store", topics=["orders"]).read_pandas()
"""

from pyledger.arrow.partition_view import left_of
from pyledger.arrow.record_batches import (
    COLUMNS,
    DEFAULT_COLUMNS,
    SCHEMA,
    Plan,
    Scan,
    Skipped,
    plan,
    read_partition,
    scan,
    schema_for,
)
from pyledger.arrow.scan_plan import Partition, partition_from_json
from pyledger.store.reading.reader import OnCorrupt

__all__ = [
    "COLUMNS",
    "DEFAULT_COLUMNS",
    "SCHEMA",
    "OnCorrupt",
    "Partition",
    "Plan",
    "Scan",
    "Skipped",
    "left_of",
    "partition_from_json",
    "plan",
    "read_partition",
    "scan",
    "schema_for",
]
