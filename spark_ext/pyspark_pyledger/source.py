"""`LedgerSource`: the entry point for Spark. It pins the end of every folder when the data frame is created.

Source: PySpark's `pyspark.sql.datasource`. There is no `pushFilters`: in Spark 4.3 a pushed filter leaks into
other queries over the same data frame, so ranges, queues and columns are options. Modules of writers are
imported on first use, to keep the start of reading workers short.
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
    """RocketMQ messages as rows, from store folders or running brokers."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._partitions: list[AnyPartition] | None = None
        self._handed_over = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the plan until the reader has been created; tasks do not need it."""
        return {**self.__dict__, "_partitions": None} if self._handed_over else self.__dict__

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "pyledger"

    def schema(self) -> StructType:
        """Return the selected columns. Spark calls this first, so the plan and its end are pinned here.

        Whether it is a batch or a stream is not known yet: `reader` raises errors that concern only a batch.
        """
        options = parse_read_options(self.options)
        schema = schema_of(options.columns)
        with contextlib.suppress(ConfigError):
            self._pin(options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the pinned range. With a user's schema this is the first call."""
        options = self._checked(schema)
        parts = self._pin(options)
        self._handed_over = True
        return BatchReader(schema, parts, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows folders or brokers."""
        options = self._checked(schema)
        check_stream(options)
        self._handed_over = True
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that appends; a log cannot be overwritten."""
        if overwrite:
            raise ConfigError("mode", "a log cannot be overwritten", 'use .mode("append")')
        from pyspark_pyledger.write_options import parse_write_options
        from pyspark_pyledger.writers import BatchWriter

        return BatchWriter(schema, parse_write_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a sink that appends every batch exactly once."""
        if overwrite:
            raise ConfigError("outputMode", "a log cannot be overwritten", 'use .outputMode("append")')
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
