"""Given the same messages, times and hosts, our commit log has the very bytes of upstream's."""

from itertools import groupby
from pathlib import Path

import pytest

from pyledger._core import CommitLog, MappedFile, MappedFileQueue
from tests.golden.archive import GoldenCase
from tests.models.commit_log import Log, Record, read_log
from tests.models.record_encoder import encode_batch


def test_the_same_messages_give_the_same_bytes(golden: GoldenCase, tmp_path: Path) -> None:
    if not golden.loads:
        pytest.skip("the log was cut by hand")
    theirs = golden.unpack(tmp_path / "java") / "commitlog"
    log = read_log(theirs)
    ours = tmp_path / "ours"
    rewrite(golden, log, ours)
    files = sorted(path.name for path in theirs.iterdir() if int(path.name) < log.end)
    assert sorted(path.name for path in ours.iterdir() if path.stat().st_size) == files
    for name in files:
        # Behind the end stand the remains of a torn record, which we do not imitate.
        used = min(log.end - int(name), (theirs / name).stat().st_size)
        assert (ours / name).read_bytes()[:used] == (theirs / name).read_bytes()[:used], name


def rewrite(golden: GoldenCase, log: Log, folder: Path) -> None:
    """Append the messages of a log to a log of ours, as they were put: one by one, or in batches."""
    size = golden.facts["settings"]["mappedFileSizeCommitLog"]
    folder.mkdir()
    if log.start:
        MappedFile.create(str(folder / f"{log.start:020d}"), size).close()
    queue = MappedFileQueue(str(folder), size)
    queue.load()
    if log.start:
        queue.set_end(log.start)
    with_crc = golden.name.startswith("prop-crc")
    logs: dict[str, CommitLog] = {}
    for group in puts(golden, log.records):
        first = group[0]
        host = first.store_host
        if host not in logs:
            logs[host] = CommitLog(queue, store_host=pair(host), crc_property=with_crc, strict_topics=False)
        if len(group) > 1:
            logs[host].set_next_queue_offset(first.topic, first.queue_id, first.queue_offset)
            logs[host].append_encoded_batch(
                first.topic,
                first.queue_id,
                encode_batch([(one.body, one.properties_raw, one.flag) for one in group]),
                sys_flag=first.sys_flag,
                born_timestamp_ms=first.born_timestamp,
                born_host=pair(first.born_host),
                reconsume_times=first.reconsume_times,
                store_timestamp_ms=first.store_timestamp,
            )
        else:
            logs[host].append(
                first.topic,
                first.queue_id,
                first.body,
                properties=first.properties_raw,
                flag=first.flag,
                sys_flag=first.sys_flag,
                born_timestamp_ms=first.born_timestamp,
                born_host=pair(first.born_host),
                reconsume_times=first.reconsume_times,
                prepared_transaction_offset=first.prepared_transaction_offset,
                store_timestamp_ms=first.store_timestamp,
                queue_offset=first.queue_offset,
            )
    queue.close()


def puts(golden: GoldenCase, records: list[Record]) -> list[list[Record]]:
    """The records of each put: all of a batch have one producer and birth, which the kit draws anew."""
    if "batch" not in " ".join(golden.facts.get("command", ())):
        return [[record] for record in records]
    births = groupby(records, lambda r: (r.topic, r.queue_id, r.born_timestamp, r.born_host, r.sys_flag))
    return [list(group) for _, group in births]


def pair(host: str) -> tuple[str, int]:
    """`ip:port` as address literal and port."""
    address, _, port = host.rpartition(":")
    return address.strip("[]"), int(port)
