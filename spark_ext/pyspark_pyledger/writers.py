"""The writers that Spark calls: tasks stage rows, the driver commits them.

Spark creates one batch writer per job and pickles it for the tasks. For a stream it creates one per batch and
another for the commit, so the names of staged files are passed in the tasks' commit messages.

Source: PySpark's `pyspark.sql.datasource`.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyledger.store.files.staged_rows import claim, process_of_job, sweep
from pyspark_pyledger.commit import publish
from pyspark_pyledger.staging import StagedFile, stage_rows, staging_folder
from pyspark_pyledger.write_options import WriteOptions, check_columns, sink_name

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Staged(WriterCommitMessage):
    """The commit message of a task."""

    file: StagedFile


class _Staging:
    """What batch and stream writers share: the part that runs in tasks."""

    def __init__(self, schema: StructType, options: WriteOptions, job: str) -> None:
        check_columns(schema, options)
        self._options = options
        self._job = job
        claim(staging_folder(options.path, job), process_of_job())

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Staged:
        """Stage the rows of one task."""
        folder = staging_folder(self._options.path, self._job)
        return Staged(stage_rows(folder, iterator, self._options.topic))


class BatchWriter(_Staging, DataSourceArrowWriter):
    """Appends the rows of a frame."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        super().__init__(schema, options, f"job-{uuid.uuid4().hex}")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append the rows that all tasks staged."""
        publish(self._options, self._job, None, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files of all tasks."""
        sweep(staging_folder(self._options.path, self._job))


class StreamWriter(_Staging, DataSourceStreamArrowWriter):
    """Appends the batches of a stream, each once."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        super().__init__(schema, options, f"sink-{sink_name(options)}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Append a batch, unless it was committed before a restart."""
        publish(self._options, self._job, batchId, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Keep the staged files: a commit may be in progress, and the next one deletes them."""


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.file for message in messages if isinstance(message, Staged)]
