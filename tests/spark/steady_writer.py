"""A process that writes to a store until it is killed, and says what it has written."""

import os
import subprocess
import sys
import time
from pathlib import Path

from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from tests.spark.test_offsets import FILE_BYTES

QUEUES = 2
PAUSE_S = 0.001


class WriterProcess:
    """Writes numbered messages, in turn to two queues, from where the store ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.acknowledged = 0
        """Messages that the store holds, by what processes said that were killed since."""

    def start(self) -> None:
        """Start it, and wait for its first message."""
        assert self._process is None
        command = [sys.executable, "-m", __spec__.name, str(self._folder)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        self.acknowledged = int(self._process.stdout.readline())

    def kill(self) -> None:
        """Kill it with SIGKILL, wherever it is."""
        if self._process is not None:
            self._process.kill()
            said, _ = self._process.communicate()
            self.acknowledged = int((said.rpartition("\n")[0] or f"{self.acknowledged}").rpartition("\n")[2])
            self._process = None


def main(folder: str) -> None:
    with MessageStore.open(folder, mapped_file_size_bytes=FILE_BYTES, index_enabled=False) as store:
        number = sum(queue.max_offset for queue in store.queues().values())
        while True:
            body = b"%d:" % number + b"x" * (number % 200)
            store.put(Message("orders", body, queue_id=number % QUEUES))
            number += 1
            print(number, flush=True)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1])
