"""Two Python sinks beside ours: the ceiling of any, and that of any whose rows survive a power cut.

The one counts the rows of Arrow batches and keeps nothing. The other writes them once, to a file for each
task, and flushes it as ours does; nobody numbers them or sees that all come or none.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyledger.store.files.writeback_file import WritebackFile


@dataclass
class Counted(WriterCommitMessage):
    row_count: int


class DiscardingSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DiscardingWriter()


class DiscardingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Counted(sum(batch.num_rows for batch in iterator))


class KeepingSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "keep"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return KeepingWriter(self.options["path"])


class KeepingWriter(DataSourceArrowWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        folder = Path(self.folder)
        folder.mkdir(exist_ok=True)
        count = 0
        first = next(iterator)
        with WritebackFile(folder / uuid.uuid4().hex) as file:
            with pa.ipc.new_file(file.sink, first.schema) as writer:
                batch: pa.RecordBatch | None = first
                while batch is not None:
                    writer.write_batch(batch)
                    file.start_writeback()
                    count += batch.num_rows
                    batch = next(iterator, None)
            file.flush()
        return Counted(count)
