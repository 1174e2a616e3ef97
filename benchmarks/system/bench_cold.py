"""Cold segments: how fast blocks are unpacked and walked, one message is read, and how small they are.

Three logs: typical messages, messages with random bodies, and real flights. Baseline: the same walk
over the file that is not packed, resident. Each round maps the packed file anew, as each reader does, so that
nothing is unpacked before. One core does it all.
"""

import random
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.micro.typical_log import typical_log
from pyledger._core import (
    LogView,
    MappedFile,
    decompressed_blocks,
    limit_decompressed_bytes,
    read_message,
    scan,
)
from pyledger.store.cold.segment_writer import BLOCK_BYTES, write_segment
from pyledger.store.reading.reader import StoreReader
from tests.core.log.log_files import RecordFields
from tests.golden.archive import golden_case

BUDGET_BYTES = 128 << 20
BLOCKS = {"64KiB": 64 << 10, "256KiB": BLOCK_BYTES, "1MiB": 1 << 20}
POINTS = 200


@pytest.fixture(scope="module")
def messages(scale: str) -> int:
    return 500_000 if scale == "full" else 2_000


@pytest.fixture(scope="module", params=["typical", "random", "flights"], ids="log={}".format)
def log(messages: int, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LogView:
    folder = tmp_path_factory.mktemp("log")
    make = {"typical": typical_log, "random": random_log, "flights": flights_log}[request.param]
    return make(folder, messages)


@pytest.fixture
def packed(log: LogView, blocks: str, tmp_path: Path) -> Iterator[LogView]:
    target = tmp_path / f"{0:020d}.lz4"
    write_segment(log.files[0], str(target), block_bytes=BLOCKS[blocks])
    yield LogView([MappedFile.open(str(target))], log.end_offset)
    target.unlink()


def random_log(folder: Path, messages: int) -> LogView:
    """Bodies of 256 random bytes."""
    chance = random.Random(1)
    path = folder / f"{0:020d}"
    at = 0
    with path.open("wb") as file:
        for n in range(messages):
            fields = RecordFields(topic=b"orders", body=chance.randbytes(256), queue_offset=n)
            at += file.write(fields.encode(at))
    return LogView([MappedFile.open(str(path))], at)


def flights_log(folder: Path, messages: int) -> LogView:
    """What `examples/flights.py` writes, again and again: blocks are packed each for itself."""
    store = golden_case("flights-5").unpack(folder / "store")
    with StoreReader.open(store) as reader:
        found = [(m.topic.encode(), m.body, m.properties) for m in reader.messages()]
    path = folder / f"{0:020d}"
    at = 0
    with path.open("wb") as file:
        for n, (topic, body, properties) in enumerate(islice(cycle(found), messages)):
            fields = RecordFields(topic=topic, body=body, properties=properties, queue_offset=n)
            at += file.write(fields.encode(at))
    return LogView([MappedFile.open(str(path))], at)


def forget() -> None:
    """Give back what is unpacked."""
    limit_decompressed_bytes(0)
    limit_decompressed_bytes(BUDGET_BYTES)


@pytest.mark.benchmark(group="cold scan")
@pytest.mark.parametrize("check", [True, False], ids=["crc=on", "crc=off"])
@pytest.mark.parametrize("blocks", BLOCKS, ids="blocks={}".format)
def bench_scan(rounds: Rounds, log: LogView, packed: LogView, blocks: str, check: bool) -> None:
    file = packed.files[0]

    def mapped_anew() -> LogView:
        forget()
        return LogView([MappedFile.open(file.path)], packed.end_offset)

    rounds.run(
        mapped_anew,
        lambda view: scan(view, 0, check=check).record_count,
        units=packed.end_offset,
        expected=scan(log, 0).record_count,
        ratio=file.size_bytes / Path(file.path).stat().st_size,
    )


@pytest.mark.benchmark(group="cold scan")
@pytest.mark.parametrize("check", [True, False], ids=["crc=on", "crc=off"])
def bench_plain_file(rounds: Rounds, log: LogView, check: bool) -> None:
    """The baseline."""
    count = scan(log, 0).record_count
    rounds.run(forget, lambda _: scan(log, 0, check=check).record_count, units=log.end_offset, expected=count)


@pytest.mark.benchmark(group="cold point read")
@pytest.mark.parametrize("blocks", BLOCKS, ids="blocks={}".format)
def bench_point_read(rounds: Rounds, log: LogView, packed: LogView, blocks: str) -> None:
    """Messages far apart, the block of each not unpacked before."""
    places, where, step = [], 0, max(1, log.end_offset // POINTS)
    while (found := scan(log, where, min(where + step, log.end_offset), check=False)).record_count:
        places.append(found.last_record_offset)
        where = found.next_offset

    def act(_: None) -> tuple[int, bool]:
        size = most = 0
        for place in places:
            forget()
            before = decompressed_blocks()[0]
            size += read_message(packed, place).store_size
            most = max(most, decompressed_blocks()[0] - before)
        return size, most == 1

    size = sum(read_message(log, place).store_size for place in places)
    rounds.run(forget, act, units=len(places), expected=(size, True), blocks_each=1)
