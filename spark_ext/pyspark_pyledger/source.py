"""`LedgerSource`: the entry that Spark calls. It pins the end of every folder when the data frame is made.

Source: PySpark's `pyspark.sql.datasource`. No `pushFilters`: in Spark 4.3 a pushed filter leaks into other
queries over the same data frame, so ranges, queues and columns are options. What only writers need is
imported by them: a worker that reads would wait for it.
"""

import contextlib
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyledger.errors import ConfigError
from pyspark_pyledger.batch_reader import BatchReader
from pyspark_pyledger.options import ReadOptions, check_batch, check_stream, parse_read_options
from pyspark_pyledger.partitions import AnyPartition
from pyspark_pyledger.planning import plan_folders
from pyspark_pyledger.schema import check_schema, schema_of
from pyspark_pyledger.stream_reader import StreamReader
from pyspark_pyledger.stream_source import plan_brokers


class LedgerSource(DataSource):
    """RocketMQ's messages as rows, of store folders or of brokers that run."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._partitions: list[AnyPartition] | None = None
        self._handed_over = False

    def __getstate__(self) -> dict[str, Any]:
        """With the plan on the way to where the reader is made, and without it on to the tasks."""
        return {**self.__dict__, "_partitions": None} if self._handed_over else self.__dict__

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "pyledger"

    def schema(self) -> StructType:
        """The asked columns. Called when the data frame is made: the plan and its end are pinned here.

        Whether a batch or a stream is meant is not known yet; what only a batch refuses waits for `reader`.
        """
        options = parse_read_options(self.options)
        schema = schema_of(options.columns)
        with contextlib.suppress(ConfigError):
            self._pin(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the pinned range. With a user's own schema this is the first call."""
        options = self._checked(schema)
        parts = self._pin(options)
        self._handed_over = True
        return BatchReader(schema, parts, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that follows folders or brokers."""
        options = self._checked(schema)
        check_stream(options)
        self._handed_over = True
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends; a log has nothing that can be overwritten."""
        if overwrite:
            raise ConfigError("mode", "a log cannot be overwritten", 'say .mode("append")')
        from pyspark_pyledger.write_options import parse_write_options
        from pyspark_pyledger.writers import BatchWriter

        return BatchWriter(schema, parse_write_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A sink that appends every batch once."""
        if overwrite:
            raise ConfigError("outputMode", "a log cannot be overwritten", 'say .outputMode("append")')
        from pyspark_pyledger.write_options import parse_write_options
        from pyspark_pyledger.writers import StreamWriter

        return StreamWriter(schema, parse_write_options(self.options))

    def _checked(self, schema: StructType) -> ReadOptions:
        options = parse_read_options(self.options)
        check_schema(schema)
        if options.columns is not None and tuple(schema.names) != options.columns:
            raise ConfigError("columns", "a schema is given as well", "give one of the two")
        return options

    def _pin(self, options: ReadOptions) -> list[AnyPartition]:
        check_batch(options)
        if self._partitions is None:
            self._partitions = (
                list(plan_folders(options)) if options.name_servers is None else plan_brokers(options)
            )
        return self._partitions
