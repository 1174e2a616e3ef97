"""Every record that Java wrote, appended again from its fields: the same bytes at the same places."""

import re
from pathlib import Path

from pyledger._core import CommitLog, MappedFileQueue
from tests.golden.archive import GoldenCase
from tests.models.commit_log import Record, read_log
from tests.models.record_encoder import encode_batch


def host_of(text: str) -> tuple[str, int]:
    """`ip:port` or `[ip6]:port` in two parts."""
    found = re.fullmatch(r"\[?(.*?)]?:(\d+)", text)
    assert found is not None
    return found[1], int(found[2])


class Copy:
    """Appends records to new files, with one log for each store host."""

    def __init__(self, queue: MappedFileQueue, crc_property: bool) -> None:
        self.queue, self.crc_property = queue, crc_property
        self.logs: dict[str, CommitLog] = {}

    def log_of(self, record: Record) -> CommitLog:
        if record.store_host not in self.logs:
            self.logs[record.store_host] = CommitLog(
                self.queue,
                store_host=host_of(record.store_host),
                crc_property=self.crc_property,
                strict_topics=False,
            )
        return self.logs[record.store_host]

    def append(self, record: Record) -> int:
        return self.log_of(record).append(
            record.topic,
            record.queue_id,
            record.body,
            properties=record.properties_raw,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp_ms=record.born_timestamp,
            born_host=host_of(record.born_host),
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            store_timestamp_ms=record.store_timestamp,
            queue_offset=record.queue_offset,
        )[0]

    def append_batch(self, records: list[Record]) -> int:
        first = records[0]
        return self.log_of(first).append_encoded_batch(
            first.topic,
            first.queue_id,
            encode_batch([(record.body, record.properties_raw, record.flag) for record in records]),
            sys_flag=first.sys_flag,
            born_timestamp_ms=first.born_timestamp,
            born_host=host_of(first.born_host),
            reconsume_times=first.reconsume_times,
            store_timestamp_ms=first.store_timestamp,
        )[0]


def batch_that_did_not_fit(records: list[Record], left_bytes: int) -> list[Record]:
    """The records of the batch that had to go to the next file, though the first of them alone did fit."""
    total = 0
    for count, record in enumerate(records, 1):
        total += record.store_size
        assert record.store_timestamp == records[0].store_timestamp, "not a batch"
        if total + 8 > left_bytes:
            return records[:count]
    raise AssertionError("the batch did fit")


def test_records_of_java_appended_again_are_the_same_bytes(
    golden: GoldenCase, golden_store: Path, tmp_path: Path
) -> None:
    source = read_log(golden_store / "commitlog")
    size_bytes = max(path.stat().st_size for path in (golden_store / "commitlog").iterdir())
    queue = MappedFileQueue(str(tmp_path / "again"), size_bytes)
    queue.load()
    queue.last_file(source.start)
    copy = Copy(queue, any(b"__CRC32#" in record.properties_raw for record in source.records))
    records = source.records
    assert records
    at = 0
    while at < len(records):
        record = records[at]
        left_bytes = queue.next_file_offset - queue.max_offset
        together = 1
        if record.physical_offset == queue.max_offset or record.store_size + 8 > left_bytes:
            found = copy.append(record)
        else:
            batch = batch_that_did_not_fit(records[at : at + 1000], left_bytes)
            together, found = len(batch), copy.append_batch(batch)
        assert found == record.physical_offset
        at += together
    for file in queue.files:
        length = min(file.committed_position, source.end - file.start_offset)
        assert (
            file.read(0, length) == (golden_store / "commitlog" / Path(file.path).name).read_bytes()[:length]
        )
    queue.close()
