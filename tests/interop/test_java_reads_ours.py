"""Java's store opens folders that we wrote: nothing dropped, no complaint, every message equal."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from tests.interop.java import JavaRun, JavaStore, JavaStores
from tests.interop.ours import ONE_FILE, SMALL, STORE_HOST, in_queues, outside_queues, put_all, write_folder
from tests.interop.workload import KINDS, Line, Workload, encode_batch, expected_line, kinds_for

pytestmark = pytest.mark.java


def bare(lines: list[Line]) -> list[Line]:
    return [{name: value for name, value in line.items() if name != "kind"} for line in lines]


def assert_same(seen: JavaRun, wanted: list[Line]) -> None:
    """Java's lines are the messages that were put, each in its place."""
    assert bare(seen.of_kind("message")) == in_queues(wanted)
    assert bare(seen.of_kind("unindexed")) == outside_queues(wanted)


def assert_same_answers(seen: JavaRun, folder: Path) -> None:
    """Our reader answers as Java does, by key and by time."""
    with StoreReader.open(folder) as reader:
        for line in seen.of_kind("key"):
            found = [message.physical_offset for message in reader.query(line["topic"], line["key"])]
            assert found == sorted(set(line["physicalOffsets"])), line
        for line in seen.of_kind("time"):
            if "upper" in line:
                queue = (line["topic"], line["queueId"])
                assert reader.offset_by_time(*queue, line["timestamp"]) == line["lower"], line
                assert reader.offset_by_time(*queue, line["timestamp"], upper=True) == line["upper"], line


@pytest.mark.parametrize("sizes", [SMALL, ONE_FILE], ids=["rolled", "one-file"])
def test_every_kind_of_message(java: JavaStore, tmp_path: Path, sizes: dict[str, Any]) -> None:
    folder = tmp_path / "store"
    kinds = kinds_for(java.version) if sizes is SMALL else (*kinds_for(java.version), "big")
    wanted = write_folder(folder, 11, 500, kinds=kinds, **sizes)
    seen = java.judge(folder, "--queries")
    assert_same(seen, wanted)
    assert_same_answers(seen, folder)
    assert (seen.summary["blanks"] > 2) == (sizes is SMALL)
    assert not seen.summary["abortFile"]


def test_other_settings(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    wanted = write_folder(folder, 12, 200, kinds=("plain", "tagged"), queues=300, flush_disk_type="sync")
    assert_same(java.judge(folder), wanted)


def test_crc_property(java_store: JavaStores, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    kinds = tuple(kind for kind in KINDS if kind != "batch")
    wanted = write_folder(folder, 13, 200, kinds=kinds, crc_property=True)
    options = "enabledAppendPropCRC=true,forceVerifyPropCRC=true"
    seen = java_store("5.3.3").judge(folder, "--set", options)
    for line in seen.of_kind("message"):
        assert line["properties"].pop("__CRC32#").isdigit()
    for line in seen.of_kind("unindexed"):
        assert line["properties"].pop("__CRC32#").isdigit()
    assert_same(seen, wanted)


def test_client_batches(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    wanted = []
    with StoreEngine.open(folder, **SMALL) as store:
        for parts in Workload(18).draw(300, ("batch",)):
            first = parts[0]
            results = store.append_encoded_batch(
                Message(
                    first.topic,
                    encode_batch(parts),
                    first.queue_id,
                    born_timestamp_ms=first.born_timestamp_ms,
                    born_host=first.born_host,
                )
            )
            wanted += [expected_line(*pair, STORE_HOST) for pair in zip(parts, results, strict=True)]
    assert_same(java.judge(folder), wanted)


def test_inner_batches(java_store: JavaStores, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    wanted, ends = [], [0, 0]
    with StoreEngine.open(folder, **(SMALL | {"batch_consume_queue_file_size_bytes": 460})) as store:
        put_all(store, Workload(19).draw(30, ("tagged",)))
        for number, parts in enumerate(Workload(20).draw(400, ("batch",))):
            queue_id = number % 2
            body = encode_batch(parts)
            at = store.append_inner_batch(Message("batches", body, queue_id, "TagA"))
            inner = {"INNER_NUM": str(len(parts)), "INNER_BASE": str(ends[queue_id]), "TAGS": "TagA"}
            digest = hashlib.sha256(body).hexdigest()
            wanted.append((queue_id, ends[queue_id], at.physical_offset, inner, digest, 0xC0))
            ends[queue_id] += len(parts)
    option = "mapperFileSizeBatchConsumeQueue=460"
    seen = java_store("5.3.3").judge(folder, "--set", option)
    names = ("queueId", "queueOffset", "physicalOffset", "properties", "bodySha256", "sysFlag")
    found = [tuple(m[name] for name in names) for m in seen.messages if m["topic"] == "batches"]
    assert found == sorted(wanted, key=lambda x: x[:2])
    assert [seen.summary["queues"][f"batches/{queue_id}"] for queue_id in (0, 1)] == [
        [0, end] for end in ends
    ]


def test_ipv6_store_host(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with StoreEngine.open(folder, **(SMALL | {"store_host": "2001:db8::7"})) as store:
        wanted = put_all(
            store, Workload(14).draw(80, ("plain", "ipv6", "batch")), "[2001:db8:0:0:0:0:0:7]:10911"
        )
    for line in wanted:
        line["sysFlag"] |= 0x20
    assert_same(java.judge(folder), wanted)


def test_reopened_and_written_on(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    wanted = []
    for seed in range(3):
        wanted += write_folder(folder, seed, 60, kinds=kinds_for(java.version))
    seen = java.judge(folder, "--queries")
    assert_same(seen, wanted)
    assert_same_answers(seen, folder)


def test_deleted_head(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with StoreEngine.open(folder, **SMALL) as store:
        wanted = put_all(store, Workload(15).draw(1200, ("plain", "tagged")))
        store.flush()
        store.delete_expired(immediate=True)
        start = store.min_offset
    assert 0 < start <= wanted[-100]["physicalOffset"]
    seen = java.judge(folder, "--queries")
    assert_same(seen, [line for line in wanted if line["physicalOffset"] >= start])
    assert_same_answers(seen, folder)


def test_killed(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    acknowledged = put_until_killed(folder, 16, 400)
    # As the kill left it: at most the record that was being copied is dropped.
    left = folder.with_name("left")
    shutil.copytree(folder, left)
    seen = java.read(left)
    assert seen.exit in (0, 3)
    assert seen.summary["abortFile"]
    assert_same_start(seen, acknowledged)
    # After our own recovery: a sound folder.
    with StoreEngine.open(folder):
        pass
    seen = java.judge(folder, "--queries")
    assert not seen.summary["abortFile"]
    assert_same_start(seen, acknowledged)
    assert_same_answers(seen, folder)


def put_until_killed(folder: Path, seed: int, count: int) -> list[Line]:
    """Kill -9 a process of ours while it puts; return what it had acknowledged."""
    command = [sys.executable, "-m", "tests.interop.ours", str(folder), str(seed)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += [line for line in process.stdout if line.endswith(b"}\n")]
    return [json.loads(line) for line in lines]


def assert_same_start(seen: JavaRun, acknowledged: list[Line]) -> None:
    """All that was acknowledged is there and equal; what was put but not acknowledged may follow."""
    found = sorted(
        bare(seen.of_kind("message") + seen.of_kind("unindexed")), key=lambda x: x["physicalOffset"]
    )
    assert found[: len(acknowledged)] == acknowledged
