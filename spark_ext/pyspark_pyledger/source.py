"""`LedgerSource`: the entry that Spark calls. It pins the end of every folder when the data frame is made.

Source: PySpark's `pyspark.sql.datasource`. No `pushFilters`: in Spark 4.3 a pushed filter leaks into other
queries over the same data frame, so ranges, queues and columns are options.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pyledger.arrow import Partition
from pyledger.errors import ConfigError
from pyspark_pyledger.batch_reader import BatchReader
from pyspark_pyledger.options import ReadOptions, parse_read_options
from pyspark_pyledger.planning import plan_folders
from pyspark_pyledger.schema import check_schema, schema_of


class LedgerSource(DataSource):
    """Folders of RocketMQ's message store as rows."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._partitions: list[Partition] | None = None

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "pyledger"

    def schema(self) -> StructType:
        """The asked columns. Called when the data frame is made: the plan and its end are pinned here."""
        options = parse_read_options(self.options)
        schema = schema_of(options.columns)
        self._pin(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the pinned range. With a user's own schema this is the first call."""
        options = parse_read_options(self.options)
        check_schema(schema)
        if options.columns is not None and tuple(schema.names) != options.columns:
            raise ConfigError("columns", "a schema is given as well", "give one of the two")
        return BatchReader(schema, self._pin(options), options)

    def _pin(self, options: ReadOptions) -> list[Partition]:
        if self._partitions is None:
            self._partitions = plan_folders(options)
        return self._partitions
