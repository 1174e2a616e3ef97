"""Mutated folders never crash or hang a reader, nor yield a record whose bytes do not match its CRC."""

import contextlib
import random
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger.errors import PyLedgerError
from pyledger.store.maintenance.dump import dump_file
from pyledger.store.maintenance.verify import verify
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import golden_case

NAMES = ("rolled-5", "inner-batch-5", "crash-5", "cq-ext-5")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: golden_case(name).unpack(tmp_path_factory.mktemp(name)) for name in NAMES}


def mutate(store: Path, rng: random.Random) -> None:
    """Flip, overwrite, cut, lengthen or remove, where there is something to hit."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file()]
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    used = max(1, len(data.rstrip(b"\0")))
    kind = rng.choice(("flip", "flip", "flip", "splat", "cut", "grow", "remove", "zero"))
    at = rng.randrange(used)
    if kind == "flip" and data:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "splat":
        data[at : at + 8] = rng.choice(
            (b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), rng.randbytes(8))
        )
    elif kind == "cut":
        del data[at:]
    elif kind == "grow":
        data += rng.randbytes(rng.choice((1, 4096)))
    elif kind == "zero":
        data[at : at + rng.choice((4, 400, 40_000))] = bytes(rng.choice((4, 400)))
    elif kind == "remove":
        path.unlink()
        return
    path.write_bytes(data)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 1 << 32), count=st.integers(1, 6))
def test_mutated_folder_is_read_safely(
    originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, count: int
) -> None:
    rng = random.Random(seed)
    store = tmp_path_factory.mktemp("mutated") / "store"
    shutil.copytree(originals[name], store)
    for _ in range(count):
        mutate(store, rng)
    written = {m.body for m in _messages(originals[name])}
    for on_corrupt in ("error", "skip"):
        # Any error must be one of ours; what is yielded before it must be sound.
        with contextlib.suppress(PyLedgerError), StoreReader.open(store, on_corrupt=on_corrupt) as reader:
            for order in ("log", "queue"):
                for message in reader.messages(order=order):
                    body = message.body
                    assert zlib.crc32(body) & 0x7FFFFFFF == message.body_crc or not body
                    assert body in written
            for (topic, queue_id), held in reader.queues().items():
                assert 0 <= held.min_offset <= held.max_offset
                reader.offset_by_time(topic, queue_id, 1_795_253_600_000)
            for message in reader.messages(limit=20):
                reader.query(message.topic, message.unique_key or "none")
    with contextlib.suppress(PyLedgerError):
        list(verify(store))
    path = rng.choice([p for p in sorted(store.rglob("*")) if p.is_file()])
    with contextlib.suppress(PyLedgerError):
        list(dump_file(str(path)))
    shutil.rmtree(store)


def _messages(store: Path) -> list[object]:
    with StoreReader.open(store) as reader:
        return list(reader.messages())
