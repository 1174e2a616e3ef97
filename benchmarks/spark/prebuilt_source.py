"""The ceiling of a Python data source: one prebuilt batch, handed to Spark again and again."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def read_batch(path: str) -> pa.RecordBatch:
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        return file.get_batch(0)


def write_batch(batch: pa.RecordBatch, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)


class PrebuiltSource(DataSource):
    """Options: `path` of an Arrow file with one batch, `rows` in all, `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> StructType:
        return from_arrow_schema(read_batch(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        assert schema == self.schema()
        return PrebuiltReader(self.options)


class PrebuiltReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.path, self.rows, self.count = options["path"], int(options["rows"]), int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        borders = [self.rows * n // self.count for n in range(self.count + 1)]
        return [InputPartition(after - before) for before, after in pairwise(borders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = read_batch(self.path)
        left = partition.value
        while left >= batch.num_rows:
            yield batch
            left -= batch.num_rows
        if left:
            yield batch.slice(0, left)
