"""Stores of several log files to archive, and what a reader finds in them."""

import random
from pathlib import Path

from pyledger.model.message import Message
from pyledger.store.cold.archive import ArchivedFile, archive
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

FILE_BYTES = 1 << 18
BLOCK_BYTES = 64 << 10
TIME_MAX_MS = (1 << 63) - 1
SIZES = {"mapped_file_size_bytes": FILE_BYTES, "consume_queue_file_size_bytes": 20_000}


def write_store(path: Path, messages: int = 3_000, seed: int = 5) -> Path:
    """Messages of three topics, `rare` among the first only, some of several blocks; closed in good order."""
    chance = random.Random(seed)
    with MessageStore.open(path, max_message_size_bytes=FILE_BYTES, **SIZES) as store:
        for number in range(messages):
            topic = "rare" if 100 <= number < 110 else chance.choice(["orders", "prices"])
            body = b"%d:" % number + chance.choice(
                [b"x", b"price ", chance.randbytes(40)]
            ) * chance.randrange(30)
            if number % 900 == 500:
                body = chance.randbytes(150_000)
            store.put(
                Message(topic, body, queue_id=number % 3, keys=f"k{number}", tags="a" if number % 2 else "b")
            )
    return path


def found(path: Path) -> list[tuple[object, ...]]:
    """Every message, in the order of the log, with its bytes."""
    with StoreReader.open(path) as reader:
        return [
            (m.physical_offset, m.topic, m.queue_id, m.queue_offset, m.body, m.properties, m.store_timestamp)
            for m in reader.messages()
        ]


def archive_all(path: Path, **options: int) -> list[ArchivedFile]:
    """Pack every file but the last."""
    return list(archive(path, older_than_ms=TIME_MAX_MS, **{"block_bytes": BLOCK_BYTES, **options}))


def log_files(path: Path) -> dict[str, bytes]:
    """Content of each file of the log, by name."""
    return {file.name: file.read_bytes() for file in sorted((path / "commitlog").iterdir())}
