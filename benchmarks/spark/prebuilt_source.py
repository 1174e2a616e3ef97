"""The ceiling of a Python data source, batch or stream: one prebuilt batch, handed over again and again.

Its bytes stay in the processor's caches: it is what Spark allows a source that does not even look at its
rows. With the option `copied` a batch source reads every batch of the file, each once, from the page cache:
what Spark allows one that finds its rows ready made and copies them.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType


def read_batch(path: str) -> pa.RecordBatch:
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        return file.get_batch(0)


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> None:
    """With exactly that schema: Spark compares nullability too."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        for batch in batches:
            file.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def write_batch(batch: pa.RecordBatch, path: Path) -> None:
    write_batches([batch], batch.schema, path)


class PrebuiltSource(DataSource):
    """Options: `path` of an Arrow file, `rows` in all, `partitions`; streams: `perTrigger`; or `copied`."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> StructType:
        return from_arrow_schema(read_batch(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        assert schema == self.schema()
        return CopyingReader(self.options) if "copied" in self.options else PrebuiltReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        assert schema == self.schema()
        return PrebuiltStreamReader(self.options)


def share_rows(rows: int, partitions: int) -> list[InputPartition]:
    borders = [rows * n // partitions for n in range(partitions + 1)]
    return [InputPartition(after - before) for before, after in pairwise(borders)]


def repeat_batch(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    batch = read_batch(path)
    for _ in range(rows // batch.num_rows):
        yield batch
    if rows % batch.num_rows:
        yield batch.slice(0, rows % batch.num_rows)


class PrebuiltReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.path, self.rows, self.count = options["path"], int(options["rows"]), int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        return share_rows(self.rows, self.count)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return repeat_batch(self.path, partition.value)


class CopyingReader(DataSourceReader):
    """Shares out the batches of an Arrow file, which are read into memory of their own."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path, self.count = options["path"], int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        with pa.memory_map(self.path) as source, pa.ipc.open_file(source) as file:
            borders = [file.num_record_batches * n // self.count for n in range(self.count + 1)]
        return [InputPartition(range(first, end)) for first, end in pairwise(borders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as source, pa.ipc.open_file(source) as file:
            for number in partition.value:
                yield file.get_batch(number)


class PrebuiltStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offsets are numbers of rows; it has nothing to look up."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path, self.rows, self.count = options["path"], int(options["rows"]), int(options["partitions"])
        self.rows_per_trigger = int(options["perTrigger"])

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The end never moves."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(self.rows, start["row"] + self.rows_per_trigger)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return list(share_rows(end["row"] - start["row"], self.count))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return repeat_batch(self.path, partition.value)
