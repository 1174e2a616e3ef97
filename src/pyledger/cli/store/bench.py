"""`pyledger bench`: a short self-measurement of appends and reads on this machine."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, Unpack

import click

from pyledger.cli.output import emit, format_size, print_status, print_table, progress
from pyledger.cli.parameters import NonEmptyPath, Number, json_option
from pyledger.config.keywords import StoreSettings
from pyledger.system_calls import flush_data, flush_file

EXAMPLES = """\b
Examples:
  pyledger bench --messages 20000
  pyledger bench --messages 20000 --body-size 1024 --json
"""

_BATCH = 100
_PULL = 32
_SYNC_SECONDS = 0.5
_SYNC_MOST = 20_000
_TOPIC = "bench"


@dataclass(frozen=True, slots=True)
class Measure:
    """One measurement."""

    name: str
    what: str
    messages: int
    seconds: float
    baseline: str | None = None
    """Name of the plain file operation to compare with."""

    @property
    def per_second(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


@click.command("bench", epilog=EXAMPLES)
@click.option("--messages", type=Number(1000, 10_000_000), default=300_000, show_default=True)
@click.option("--body-size", type=Number(1, 1 << 20), default=256, show_default=True, help="Bytes of a body.")
@click.option(
    "--folder",
    type=NonEmptyPath(),
    help="Folder for the temporary store, on the disk to measure. Default: /tmp.",
)
@json_option
def command(messages: int, body_size: int, folder: str | None, as_json: bool) -> None:
    """Measure appends and reads on this machine, compared with plain file operations in the same run.

    Everything is written to a temporary folder, which is removed at the end. Only the rows with `sync` wait
    for the disk; the others use the page cache. docs/design/benchmarking.md has the full measurements.
    """
    with tempfile.TemporaryDirectory(prefix="pyledger-bench-", dir=folder) as scratch:
        found: dict[str, Measure] = {}
        with progress("measuring", len(_STEPS), unit="steps") as advance:
            for number, step in enumerate(_STEPS, 1):
                found |= {measure.name: measure for measure in step(scratch, messages, body_size)}
                advance(number)
    if as_json:
        for measure in found.values():
            emit(_fields(measure, found, body_size))
        return
    print_table(("what", "messages/s", "body bytes/s", "against plain files"), _rows(found, body_size))
    print_status(
        f"{messages:,} messages of {body_size} bytes; repeat on an idle machine for reliable figures"
    )


def _ratio(measure: Measure, found: dict[str, Measure]) -> float | None:
    return None if measure.baseline is None else measure.per_second / found[measure.baseline].per_second


def _fields(measure: Measure, found: dict[str, Measure], body_size: int) -> dict[str, Any]:
    ratio = _ratio(measure, found)
    return {
        "kind": "measure",
        "name": measure.name,
        "messages": measure.messages,
        "seconds": round(measure.seconds, 6),
        "messagesPerSecond": round(measure.per_second),
        "bodyBytesPerSecond": round(measure.per_second * body_size),
        "baseline": measure.baseline,
        "ratio": None if ratio is None else round(ratio, 3),
    }


def _rows(found: dict[str, Measure], body_size: int) -> Iterator[tuple[object, ...]]:
    for measure in found.values():
        ratio = _ratio(measure, found)
        speed = f"{format_size(round(measure.per_second * body_size))}/s"
        shown = "" if ratio is None else f"{ratio:.2f} x {measure.baseline}"
        yield measure.what, round(measure.per_second), speed, shown


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _plain_files(folder: str, messages: int, body_size: int) -> Iterator[Measure]:
    """Bare bodies through Python's own files."""
    path, body = Path(folder, "plain"), bytes(body_size)

    def write() -> None:
        with path.open("wb") as file:
            for _ in range(messages):
                file.write(body)

    def read() -> None:
        with path.open("rb") as file:
            while file.read(body_size):
                pass

    yield Measure("file-write", "file.write, bare bodies", messages, _timed(write))
    yield Measure("file-read", "file.read, bare bodies", messages, _timed(read))
    count, seconds = 0, 0.0
    # As in a store, the blocks of the file are allocated before, so that a sync waits for data only.
    path.write_bytes(bytes(body_size * _SYNC_MOST if body_size <= 4096 else 64 << 20))
    with path.open("r+b", buffering=0) as file:
        flush_file(file.fileno())
        begun = time.perf_counter()
        while seconds < _SYNC_SECONDS and count < _SYNC_MOST:
            file.write(body)
            flush_data(file.fileno())
            count += 1
            seconds = time.perf_counter() - begun
    yield Measure("file-sync", "file.write and fdatasync, each", count, seconds)
    path.unlink()


def _appends(folder: str, messages: int, body_size: int) -> Iterator[Measure]:
    """Appends without waiting for the disk: one call each, then batches.

    The first file of a new store is filled before: the measured appends use preallocated files, as in a store
    that has run for a while.
    """
    body = bytes(body_size)
    batch, batches = [body] * _BATCH, max(1, messages // _BATCH)
    with _open_store(os.path.join(folder, "store"), messages * (body_size + 110)) as store:
        put, put_many = store.appender(_TOPIC, 0).put, store.appender(_TOPIC, 1).put_many
        cold_end = store.max_offset + messages * body_size
        while store.max_offset < cold_end:
            put_many(batch)

        def one_by_one() -> None:
            for _ in range(messages):
                put(body)

        def in_batches() -> None:
            for _ in range(batches):
                put_many(batch)

        yield Measure("append", "append, one call each", messages, _timed(one_by_one), "file-write")
        many = batches * _BATCH
        yield Measure("append-batch", f"append, batches of {_BATCH}", many, _timed(in_batches), "file-write")


def _reads(folder: str, messages: int, _body_size: int) -> Iterator[Measure]:
    """Reads of the appended messages: by queue as a consumer pulls, and in log order."""
    from pyledger.store.reading.reader import StoreReader

    path = os.path.join(folder, "store")
    with _open_store(path, None) as store:

        def pull() -> None:
            offset = 0
            while offset < messages:
                offset = store.get(_TOPIC, 0, offset, max_count=_PULL).next_offset

        yield Measure("get", f"read a queue, {_PULL} a call", messages, _timed(pull), "file-read")
    with StoreReader.open(path) as reader:
        total = sum(held.max_offset - held.min_offset for held in reader.queues().values())

        def scan() -> None:
            for message in reader.messages():
                message.body  # noqa: B018  reading it is what is measured

        yield Measure("scan", "scan the log, CRC checked", total, _timed(scan), "file-read")


def _synced_appends(folder: str, _messages: int, body_size: int) -> Iterator[Measure]:
    """Appends of one caller that are on disk when the call returns."""
    body, count = bytes(body_size), 0
    with _open_store(os.path.join(folder, "sync"), 64 << 20, flush_disk_type="sync") as store:
        put = store.appender(_TOPIC, 0).put
        begun, seconds = time.perf_counter(), 0.0
        while seconds < _SYNC_SECONDS and count < _SYNC_MOST:
            put(body)
            count += 1
            seconds = time.perf_counter() - begun
    yield Measure("append-sync", "append, sync flush, one caller", count, seconds, "file-sync")


def _open_store(path: str, log_bytes: int | None, **settings: Unpack[StoreSettings]) -> Any:
    from pyledger.store.messages.message_store import MessageStore

    if log_bytes is not None:
        settings["mapped_file_size_bytes"] = min(max(-(-log_bytes // PAGESIZE) * PAGESIZE, 4 << 20), 1 << 30)
    return MessageStore.open(path, **settings)


_STEPS = (_plain_files, _appends, _reads, _synced_appends)
