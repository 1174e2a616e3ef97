"""How long until a store is open again: after a kill, and with queues and index to be built from the log?

Files are in the page cache, as after the death of a process; after a power cut the disk would decide. Each
round gets a fresh copy. The log is one file of 1 GiB (full scale), 256-byte bodies, a tag and a unique key.
"""

import shutil
import zlib
from pathlib import Path

import pytest

from benchmarks.load.filling import QUEUES, TOPIC, Filled
from benchmarks.load.rounds import Rounds
from benchmarks.peers.java_bench import JavaBench
from pyledger import _core
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

SCAN = "recovery scan, every CRC checked"
OPEN = "open after a kill"
REBUILD = "rebuild queues and index"


class Copies:
    """A fresh copy of a store for each round; the one before is removed."""

    def __init__(self, filled: Filled, base: Path, *, derived: bool = True) -> None:
        self.filled, self.base, self.derived, self.made = filled, base, derived, 0

    def next(self) -> Path:
        self.made += 1
        path = self.filled.copy_to(self.base / str(self.made)).path
        if not self.derived:
            shutil.rmtree(path / "consumequeue")
            shutil.rmtree(path / "index")
        return path


def end_offset(store: MessageStore) -> int:
    return store.recovery.end_offset


@pytest.mark.benchmark(group=SCAN)
def bench_scan(rounds: Rounds, filled: Filled) -> None:
    """The native scan alone: every record's lengths, position and body CRC."""
    with StoreReader.open(filled.path) as reader:
        view = reader.view

        def act(start: int) -> tuple[int, str]:
            stop = _core.scan(view, start)
            return stop.record_count, stop.status

        rounds.run(
            lambda: view.start_offset,
            act,
            units=filled.log_bytes,
            expected=(filled.messages, "end"),
            messages=filled.messages,
        )


@pytest.mark.benchmark(group=SCAN)
def bench_zlib_crc32(rounds: Rounds, filled: Filled) -> None:
    """Python's CRC over the same bytes in one piece: no record is looked at."""
    with StoreReader.open(filled.path) as reader:
        held = reader.view.view(0, filled.log_bytes)
        expected = _core.crc32(held)
        rounds.run(lambda: held, zlib.crc32, units=filled.log_bytes, expected=expected, rounds=3)
        held.release()


@pytest.mark.benchmark(group=OPEN)
def bench_open(rounds: Rounds, crashed: Filled, tmp_path: Path) -> None:
    """`MessageStore.open`: recovery with every CRC, queues and index made whole, services started."""
    copies = Copies(crashed, tmp_path)
    stores: list[MessageStore] = []

    def act(path: Path) -> tuple[int, bool]:
        stores.append(MessageStore.open(path))
        return end_offset(stores[-1]), stores[-1].recovery.clean

    def finish(path: Path) -> None:
        store = stores.pop()
        assert sum(q.max_offset for q in store.queues().values()) == crashed.messages
        store.close()
        shutil.rmtree(path)

    rounds.run(
        copies.next,
        act,
        units=crashed.log_bytes,
        expected=(crashed.log_bytes, False),
        finish=finish,
        rounds=3,
        log_bytes=crashed.log_bytes,
    )


@pytest.mark.benchmark(group=REBUILD)
def bench_dispatch(rounds: Rounds, filled: Filled, tmp_path: Path) -> None:
    """The native walk alone: from the log to fresh queues and index files, nothing flushed."""
    made: list[Path] = []

    def prepare() -> _core.Dispatcher:
        folder = tmp_path / str(len(made))
        made.append(folder)

        def open_queue(topic: str, queue_id: int, inner_batch: bool) -> _core.ConsumeQueue:
            assert not inner_batch
            return _core.ConsumeQueue(str(folder / "queues"), topic, queue_id)

        return _core.Dispatcher(open_queue, _core.IndexFileSet(str(folder / "index")))

    def finish(dispatcher: _core.Dispatcher) -> None:
        assert (dispatcher.unit_count, dispatcher.entry_count) == (filled.messages, filled.messages)
        for queue in dispatcher.queues.values():
            queue.close()
        shutil.rmtree(made[-1])

    with StoreReader.open(filled.path) as reader:
        view = reader.view
        rounds.run(
            prepare,
            lambda dispatcher: dispatcher.dispatch(view),
            units=filled.messages,
            expected=filled.log_bytes,
            finish=finish,
            rounds=3,
        )


@pytest.mark.benchmark(group=REBUILD)
def bench_rebuild(rounds: Rounds, filled: Filled, tmp_path: Path) -> None:
    """Opened without queues and index, cleanly closed before: until both are complete again."""
    copies = Copies(filled, tmp_path, derived=False)
    stores: list[MessageStore] = []

    def act(path: Path) -> int:
        stores.append(MessageStore.open(path))
        return stores[-1].dispatch()

    def finish(path: Path) -> None:
        store = stores.pop()
        ranges = store.queues()
        assert sum(ranges[TOPIC, n].max_offset for n in range(QUEUES)) == filled.messages
        assert len(store.query(TOPIC, f"{filled.messages - 1:032X}")) == 1
        store.close()
        shutil.rmtree(path)

    rounds.run(copies.next, act, units=filled.messages, expected=filled.log_bytes, finish=finish, rounds=3)


@pytest.mark.java
@pytest.mark.parametrize("case", ["recover", "rebuild"], ids="case={}".format)
def bench_java(java_bench: JavaBench, crashed: Filled, filled: Filled, case: str, tmp_path: Path) -> None:
    """RocketMQ's store opens copies of the same folders."""
    rounds = java_bench.rounds
    rounds.benchmark.group = OPEN if case == "recover" else REBUILD
    source = crashed if case == "recover" else filled
    path = Copies(source, tmp_path, derived=case == "recover").next()
    line = java_bench.run(path, case)
    assert line["bytes"] == source.log_bytes
    units = source.log_bytes if case == "recover" else source.messages
    rounds.note(per_second=units / line["readySeconds"])
