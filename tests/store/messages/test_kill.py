"""kill -9 of a writing process, again and again: what was acknowledged is there, and nothing else is."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pyledger.store.messages.message_store import MessageStore

ROOT = Path(__file__).parents[3]
SIZES = {"mapped_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 2000}

WRITER = """
    import os, sys, threading
    from pyledger.model.message import Message
    from pyledger.store.messages.message_store import MessageStore

    folder, mode, first, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    store = MessageStore.open(folder, flush_disk_type=mode, mapped_file_size_bytes=1 << 20,
                              consume_queue_file_size_bytes=2000)

    def write(queue_id):
        number = first
        while True:
            body = b"%d:%d:" % (queue_id, number) + b"x" * (number * 37 % 1500)
            os.write(1, b"try %d %d\\n" % (queue_id, number))
            store.put(Message("t", body, queue_id=queue_id, keys="k%d-%d" % (queue_id, number)))
            os.write(1, b"ack %d %d\\n" % (queue_id, number))
            number += 1

    for queue_id in range(threads):
        threading.Thread(target=write, args=(queue_id,), daemon=True).start()
    threading.Event().wait()
"""


def write_until_killed(
    folder: Path, mode: str, first: int, threads: int, lines: int
) -> list[tuple[str, int, int]]:
    """Run the writer, kill it once it printed that many lines, and give what it printed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(folder), mode, str(first), str(threads)],
        stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}"),
    )  # fmt: skip
    assert writer.stdout is not None
    with writer, writer.stdout as output:
        seen = []
        for line in output:
            seen.append(line)
            if len(seen) == lines:
                writer.send_signal(signal.SIGKILL)
        writer.wait(100)
    assert writer.returncode == -signal.SIGKILL, "the writer ended by itself"
    words = [line.split() for line in seen if line.endswith(b"\n")]
    return [(kind.decode(), int(queue_id), int(number)) for kind, queue_id, number in words]


def stored(store: MessageStore, queue_id: int) -> list[int]:
    """Numbers of the messages of a queue, in queue order; offsets must be dense and bodies whole."""
    span = store.queue_range("t", queue_id)
    numbers, offset = [], span.min_offset
    while offset < span.max_offset:
        found = store.get("t", queue_id, offset)
        for message in found.messages:
            assert message.queue_offset == offset
            queue, number, filling = message.body.split(b":")
            assert int(queue) == queue_id
            assert len(filling) == int(number) * 37 % 1500
            numbers.append(int(number))
            offset += 1
    return numbers


@pytest.mark.parametrize(
    ("mode", "threads"),
    [
        pytest.param("SYNC_FLUSH", 1, marks=pytest.mark.slow),
        ("SYNC_FLUSH", 4),
        pytest.param("ASYNC_FLUSH", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_writer_keeps_every_acknowledged_message(tmp_path: Path, mode: str, threads: int) -> None:
    seed = random.Random(f"{mode}{threads}")
    tried: dict[int, set[int]] = {queue: set() for queue in range(threads)}
    acked: dict[int, set[int]] = {queue: set() for queue in range(threads)}
    first = 0
    for _ in range(5):
        printed = write_until_killed(tmp_path / "s", mode, first, threads, seed.randrange(20, 600))
        for kind, queue_id, number in printed:
            (tried if kind == "try" else acked)[queue_id].add(number)
        first += 10_000
        with MessageStore.open(tmp_path / "s", **SIZES) as store:
            assert not store.recovery.clean
            for queue_id in range(threads):
                numbers = stored(store, queue_id)
                assert len(set(numbers)) == len(numbers)
                assert numbers == sorted(numbers)
                assert acked[queue_id] <= set(numbers), "an acknowledged message is gone"
                assert set(numbers) <= tried[queue_id], "a message appeared that nobody wrote"
                for last in numbers[-1:]:
                    keyed = store.query("t", f"k{queue_id}-{last}")
                    assert [message.body.split(b":")[1] for message in keyed] == [b"%d" % last]
