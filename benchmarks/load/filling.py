"""A typical store: what RocketMQ's StoreBench fills too. 256-byte bodies, a tag, a unique key, four queues.

Run as a program it fills a folder and dies without closing the store, as a killed process does.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from pyledger.store.messages.message_store import MessageStore

TOPIC = "bench"
QUEUES = 4
TAG = "TagA"
REST = bytes(range(8, 256))


@dataclass(frozen=True)
class Filled:
    """A store on disk and what is in it."""

    path: Path
    messages: int
    log_bytes: int

    def copy_to(self, path: Path) -> "Filled":
        """A copy that shares the log's file, which no recovery of a sound log changes."""
        shutil.copytree(self.path / "commitlog", path / "commitlog", copy_function=os.link)
        for item in self.path.iterdir():
            if item.name != "commitlog":
                # cp keeps sparse files sparse, and copies within the kernel.
                subprocess.run(["cp", "-a", "--sparse=always", str(item), str(path)], check=True)
        return replace(self, path=path)


def body(number: int) -> bytes:
    return number.to_bytes(8, "big") + REST


def unique_key(number: int) -> str:
    return f"{number:032X}"


def fill(store: MessageStore, log_bytes: int) -> int:
    """Append until the log has so many bytes; the number of messages."""
    puts = [store.appender(TOPIC, queue).put for queue in range(QUEUES)]
    number = offset = 0
    while offset < log_bytes:
        offset = puts[number % QUEUES](body(number), TAG, None, {"UNIQ_KEY": unique_key(number)})
        number += 1
    return number


def fill_and_die(path: Path, log_bytes: int) -> Filled:
    """Fill a folder in a process that ends without closing it."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, str(path), str(log_bytes)],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    messages, end = map(int, done.stdout.split())
    assert (path / "abort").exists()
    return Filled(path, messages, end)


def close_cleanly(crashed: Filled, path: Path) -> Filled:
    """Recover a copy and close it."""
    copy = crashed.copy_to(path)
    with MessageStore.open(path) as store:
        store.dispatch()
    assert not (path / "abort").exists()
    return copy


def main(path: str, log_bytes: str) -> None:
    store = MessageStore.open(path)
    messages = fill(store, int(log_bytes))
    store.dispatch()
    print(messages, store.max_offset, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
