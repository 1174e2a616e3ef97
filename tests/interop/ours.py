"""Folders that PyLedger writes for upstream's store to judge, and what must be found in them.

As a program it puts messages until it is killed: `python -m tests.interop.ours FOLDER SEED`, one JSON line
for each acknowledged put.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyledger.store.messages.message_store import MessageStore
from tests.interop.workload import KILLED_KINDS, KINDS, Line, Put, Workload, expected_line

STORE_HOST = "10.0.0.7:10911"
SMALL = {
    "mapped_file_size_bytes": 64 << 10,
    "consume_queue_file_size_bytes": 400,
    "index_slots": 100,
    "index_entries": 400,
    "store_host": "10.0.0.7",
}
ONE_FILE = SMALL | {
    "mapped_file_size_bytes": 4 << 20,
    "consume_queue_file_size_bytes": 20_000,
    "index_slots": 1000,
    "index_entries": 4000,
}


def put_all(store: MessageStore, puts: Iterable[Put], store_host: str = STORE_HOST) -> list[Line]:
    """Put everything; return the lines that a reader must print, in the order of the log."""
    lines = []
    for messages in puts:
        results = store.put_batch(messages) if len(messages) > 1 else [store.put(messages[0])]
        lines += [expected_line(*pair, store_host) for pair in zip(messages, results, strict=True)]
    return lines


def write_folder(
    folder: Path, seed: int, count: int, *, kinds: Sequence[str] = KINDS, queues: int = 4, **options: Any
) -> list[Line]:
    """Write a folder of ours and close it."""
    with MessageStore.open(folder, **(SMALL | options)) as store:
        return put_all(store, Workload(seed, queues=queues).draw(count, kinds))


def in_queues(lines: Iterable[Line]) -> list[Line]:
    """The lines of messages that a consume queue names, in queue order."""
    named = [line for line in lines if "tagsCode" in line]
    return sorted(named, key=lambda line: (line["topic"], line["queueId"], line["queueOffset"]))


def outside_queues(lines: Iterable[Line]) -> list[Line]:
    """The lines of prepared and rolled-back messages."""
    return [line for line in lines if "tagsCode" not in line]


def main(folder: str, seed: int) -> None:
    """Put until killed."""
    with MessageStore.open(Path(folder), **SMALL) as store:
        for messages in Workload(seed).draw(1 << 40, KILLED_KINDS):
            for line in put_all(store, [messages]):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
