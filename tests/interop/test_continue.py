"""A folder changes hands: Java writes on in ours, we write on in Java's, and we read while Java writes."""

import json
from pathlib import Path

import pytest

from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.lines import as_line
from tests.interop.java import JavaStore
from tests.interop.ours import STORE_HOST, outside_queues, put_all, write_folder
from tests.interop.workload import Line, Workload, kinds_for

pytestmark = pytest.mark.java

JAVA_SIZES = ("--commitlog-file", "65536", "--cq-units", "20", "--index-slots", "100")
JAVA_MIX = ("--mix", "single,batch,zlib,delay,tx,ipv6")


def ours(folder: Path) -> list[Line]:
    with StoreReader.open(folder) as reader:
        return [as_line(message) for message in reader.messages(order="queue")]


def by_place(lines: list[Line]) -> dict[int, Line]:
    return {line["physicalOffset"]: {k: v for k, v in line.items() if k != "kind"} for line in lines}


def assert_holds(lines: list[Line], wanted: list[Line]) -> None:
    """Every message of ours is among the lines, unchanged."""
    found = by_place(lines)
    unnamed = {line["physicalOffset"] for line in outside_queues(wanted)}
    for line in wanted:
        if line["physicalOffset"] not in unnamed:
            assert found[line["physicalOffset"]] == line


def test_java_writes_on_in_ours(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    wanted = write_folder(folder, 21, 300, kinds=kinds_for(java.version))
    java.write(folder, "--count", "150", "--seed", "5", *JAVA_SIZES, *JAVA_MIX, "--settle", "1500")
    seen = java.judge(folder)
    assert ours(folder) == seen.of_kind("message")
    assert len(seen.messages) > 400
    assert_holds(seen.messages, wanted)


def test_we_write_on_in_javas(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    java.write(folder, "--count", "150", "--seed", "6", *JAVA_SIZES, *JAVA_MIX, "--settle", "1500")
    before = ours(folder)
    with MessageStore.open(folder, store_host="10.0.0.7") as store:
        wanted = put_all(store, Workload(22).draw(300, kinds_for(java.version)), STORE_HOST)
    seen = java.judge(folder)
    assert ours(folder) == seen.of_kind("message")
    assert_holds(seen.messages, wanted)
    assert_holds(seen.messages, list(by_place(before).values()))
    # The queues go on where Java left them.
    assert len({(m["topic"], m["queueId"], m["queueOffset"]) for m in seen.messages}) == len(seen.messages)


def test_the_folder_goes_to_and_fro(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    wanted: list[Line] = []
    for round_ in range(3):
        java.write(folder, "--count", "40", "--seed", str(round_), *JAVA_SIZES, *JAVA_MIX)
        wanted += write_folder(folder, 30 + round_, 40, kinds=kinds_for(java.version))
    seen = java.judge(folder)
    assert ours(folder) == seen.of_kind("message")
    assert_holds(seen.messages, wanted)


def test_we_recover_what_java_left_in_a_crash(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    java.write(folder, "--count", "200", "--seed", "7", *JAVA_SIZES, *JAVA_MIX, "--exit", "halt")
    assert (folder / "abort").exists()
    before = ours(folder)
    assert len(before) > 100
    with MessageStore.open(folder, store_host="10.0.0.7") as store:
        wanted = put_all(store, Workload(23).draw(50, kinds_for(java.version)), STORE_HOST)
    seen = java.judge(folder)
    assert ours(folder) == seen.of_kind("message")
    assert_holds(seen.messages, [*wanted, *by_place(before).values()])


def test_reading_while_java_writes(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    options = ("--count", "1500", "--seed", "8", "--pace", "300", "--mix", "single,batch,tx", *JAVA_SIZES)
    with java.start("StoreWrite", folder, *options) as process:
        assert process.stdout is not None
        acknowledged = [json.loads(process.stdout.readline())]
        with StoreReader.open(folder) as reader:
            sizes, seen = [], []
            for line in map(json.loads, process.stdout):
                if line["kind"] != "put":
                    break
                acknowledged.append(line)
                if len(acknowledged) % 40 == 0:
                    reader.refresh()
                    found = [as_line(message) for message in reader.messages(order="log")]
                    # All that Java had acknowledged is visible, and what was seen before is seen again.
                    assert reader.max_offset >= line["physicalOffset"] + line["bytes"]
                    assert found[: len(seen)] == seen
                    seen = found
                    sizes.append(len(found))
            assert len(sizes) > 5
            assert sizes == sorted(sizes)
            assert len(set(sizes)) > 2
        assert process.wait(60) == 0
    judged = java.judge(folder)
    every = by_place(judged.of_kind("message") + judged.of_kind("unindexed"))
    for line in seen:
        assert {k: v for k, v in line.items() if k != "kind"} == every[line["physicalOffset"]]
