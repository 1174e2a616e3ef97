"""Crash images: after a power cut each page that was not flushed is there or not, by itself. Recovery must
find a prefix of what was appended that holds all that was flushed, and derived files that equal a fresh
rebuild.

A workload runs in a real store. At every flush the test keeps what is durable from then on; at the "cut" it
composes, page by page and by seed, a folder from the durable and the newest contents, and opens that.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine

PAGE = 4096
OPTIONS = {
    "mapped_file_size_bytes": 64 * 1024,
    "consume_queue_file_size_bytes": 8000,
    "index_slots": 50,
    "index_entries": 400,
    # No flush but the test's own.
    "flush_interval_ms": 3_600_000,
    "flush_thorough_interval_ms": 3_600_000,
    "consume_queue_flush_interval_ms": 3_600_000,
}  # fmt: skip


@dataclass
class Workload:
    """What was put, and which bytes of which file are durable."""

    folder: Path
    rng: random.Random
    put: list[tuple[int, str, int, int, bytes, str]] = field(default_factory=list)
    """Physical offset, topic, queue id, queue offset, body, key; in log order."""
    durable: dict[str, bytes] = field(default_factory=dict)
    flushed_where: int = 0
    store: StoreEngine | None = None

    def close(self) -> None:
        assert self.store is not None
        self.store.close()

    def write(self, store: StoreEngine, count: int) -> None:
        for _ in range(count):
            number = len(self.put)
            topic, queue_id = self.rng.choice(("a", "b")), self.rng.randrange(3)
            body = number.to_bytes(4, "big") + self.rng.randbytes(self.rng.choice((5, 50, 700, 5000)))
            key = f"key{number % 97}"
            message = Message(topic, body, queue_id=queue_id, keys=key, tags="t", properties=pad_of(number))
            result = store.put(message)
            self.put.append((result.physical_offset, topic, queue_id, result.queue_offset, body, key))

    def keep(self, store: StoreEngine, *, everything: bool) -> None:
        """Flush the log (or everything) and note what is durable since."""
        if everything:
            store.flush()
        else:
            store.flush_log()
        self.flushed_where = store.flushed_where
        for name, data in contents(self.folder):
            kind = name.split("/")[0]
            if kind == "commitlog":
                self.durable[name] = self._flushed_part(name, data)
            elif everything or kind in ("abort", "checkpoint", "lock"):
                self.durable[name] = data

    def _flushed_part(self, name: str, data: bytes) -> bytes:
        """Bytes below the flushed end; beyond it the older durable bytes, or zeroes."""
        start = int(name.split("/")[1])
        flushed = max(0, min(len(data), self.flushed_where - start))
        older = self.durable.get(name, bytes(len(data)))
        return data[:flushed] + older[flushed:]


def pad_of(number: int) -> dict[str, str]:
    """Properties of a message, for every third so many that pages behind the body can be lost."""
    return {"pad": "p" * (1 + number * 977 % 9000)} if number % 3 == 0 else {}


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def compose_image(work: Workload, image: Path, rng: random.Random) -> None:
    """Write what a power cut may leave: per page the durable or the newest contents."""
    share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    for name, newest in contents(work.folder):
        old = work.durable.get(name)
        if name in ("abort", "checkpoint", "lock"):
            data = newest if old is None or rng.random() < share else old
        elif old is None:
            # The name itself may be lost; a file whose length is lost is empty.
            if rng.random() < 0.3:
                continue
            data = (
                b""
                if rng.random() < 0.1 and is_last(work.folder, name)
                else mixed(bytes(len(newest)), newest, share, rng)
            )
        else:
            data = mixed(old.ljust(len(newest), b"\0"), newest, share, rng)
        path = image / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def is_last(folder: Path, name: str) -> bool:
    return name == max(p.relative_to(folder).as_posix() for p in (folder / name).parent.iterdir())


def mixed(old: bytes, new: bytes, share: float, rng: random.Random) -> bytes:
    pages = []
    for at in range(0, len(new), PAGE):
        source = new if rng.random() < share else old
        pages.append(source[at : at + PAGE])
    return b"".join(pages)


def run_workload(folder: Path, seed: int) -> Workload:
    """Put, flush the log, flush all, roll files, by seed; then leave everything as it is, unclosed."""
    rng = random.Random(seed)
    work = Workload(folder, rng)
    store = StoreEngine.open(folder, crc_property=seed % 2 == 1, **OPTIONS)
    work.keep(store, everything=True)
    for _ in range(rng.randrange(2, 7)):
        work.write(store, rng.randrange(1, 60))
        step = rng.random()
        if step < 0.4:
            work.keep(store, everything=False)
        elif step < 0.7:
            work.keep(store, everything=True)
    store.dispatch()
    work.store = store
    return work


def unit_facts(store: StoreEngine) -> dict[tuple[str, int], list[tuple[int, int, bytes]]]:
    """Every queue's messages as (queue offset, physical offset, body)."""
    found: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
    for (topic, queue_id), span in store.queues().items():
        rows = found.setdefault((topic, queue_id), [])
        offset = span.min_offset
        while offset < span.max_offset:
            result = store.get(topic, queue_id, offset)
            assert result.messages, (topic, queue_id, offset, result.status)
            rows += [(m.queue_offset, m.physical_offset, bytes(m.body)) for m in result.messages]
            offset = result.next_offset
    return {queue: rows for queue, rows in found.items() if rows}


def check_image(work: Workload, image: Path, scratch: Path) -> int:
    """Open the image, compare with the workload and with a rebuild from the log alone; give the survivors."""
    with StoreEngine.open(image, **OPTIONS) as store:
        end = store.max_offset
        survivors = [row for row in work.put if row[0] < end]
        assert [m.physical_offset for m in store.messages()] == [row[0] for row in survivors]
        for message in store.messages():
            pad = pad_of(int.from_bytes(message.body[:4], "big")).get("pad")
            assert message.properties.get("pad") == pad, message.physical_offset
        assert all(row in survivors for row in work.put if row[0] < work.flushed_where), (
            "flushed records are lost"
        )
        expected: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        for physical, topic, queue_id, queue_offset, body, _ in survivors:
            expected.setdefault((topic, queue_id), []).append((queue_offset, physical, body))
        assert unit_facts(store) == expected
        for _, topic, _, _, _, key in survivors[-20:] + survivors[:20]:
            wanted = [row[0] for row in survivors if row[1] == topic and row[5] == key]
            assert [m.physical_offset for m in store.query(topic, key)] == wanted
        log_end = end
    (scratch / "commitlog").mkdir(parents=True)
    for path in (image / "commitlog").iterdir():
        shutil.copy(path, scratch / "commitlog")
    with StoreEngine.open(scratch, **OPTIONS) as rebuilt:
        assert rebuilt.max_offset == log_end
        assert unit_facts(rebuilt) == expected
    with StoreEngine.open(image, **OPTIONS) as store:
        assert store.max_offset == log_end, "a clean reopening changed the log"
        result = store.put(Message("a", b"after", queue_id=0))
        assert result.queue_offset == len(expected.get(("a", 0), []))
        assert store.get("a", 0, result.queue_offset).messages[0].body == b"after"
    return len(survivors)


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what is durable is decided by the test, not by the disk."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "seed", [seed if seed < 3 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(16)]
)
def test_power_loss_leaves_a_prefix_with_all_that_was_flushed(memory_path: Path, seed: int) -> None:
    work = run_workload(memory_path / "live", seed)
    rng = random.Random(seed + 1000)
    survivors = []
    for number in range(4):
        image = memory_path / f"image{number}"
        compose_image(work, image, rng)
        survivors.append(check_image(work, image, memory_path / f"scratch{number}"))
    assert max(survivors) <= len(work.put)
    work.close()


def test_all_pages_lost_and_no_page_lost_are_the_two_ends(memory_path: Path) -> None:
    """The composer itself: with the durable bytes alone exactly those survive, with all pages all."""
    work = run_workload(memory_path / "live", 3)
    for name, share in (("none", 0.0), ("all", 1.0)):
        image = memory_path / name
        for path, newest in contents(work.folder):
            old = work.durable.get(path, bytes(len(newest)))
            (image / path).parent.mkdir(parents=True, exist_ok=True)
            (image / path).write_bytes(newest if share else old)
        survivors = check_image(work, image, memory_path / f"scratch-{name}")
        durable = sum(row[0] < work.flushed_where for row in work.put)
        assert survivors == (len(work.put) if share else durable)
    work.close()
