"""A limit of the address space (`ulimit -v`): files that do not fit wait, and the process goes on."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

TOPICS = 400
SETTINGS = {"mapped_file_size_bytes": 1 << 20, "index_enabled": False}
ROOM_MIB = 1200
WRITER = """
    import json, mmap, resource, sys
    from pathlib import Path
    from pyledger.store.messages.message_store import MessageStore

    path, room_mib, topics = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with MessageStore.open(path, **json.loads(sys.argv[4])) as store:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + (room_mib << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in range(topics):
            store.appender(f"T{number}", 0).put(b"%d" % number)
        store.dispatch()
        print("stored")
        mmap.mmap(-1, min(limit // 8, 256 << 20) * 9 // 10).close()
        print("the heap has room")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc/self/statm")
def test_queues_leave_address_space_to_the_heap(tmp_path: Path) -> None:
    arguments = [str(tmp_path), str(ROOM_MIB), str(TOPICS), json.dumps(SETTINGS)]
    writer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WRITER), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (writer.returncode, writer.stdout) == (0, "stored\nthe heap has room\n"), writer.stderr
    assert "dispatch waits topic=" in writer.stderr
    assert "Cannot allocate memory" in writer.stderr
    assert 20 < len(list(tmp_path.glob("consumequeue/*/0/0*"))) < TOPICS
    with MessageStore.open(tmp_path, **SETTINGS) as store:
        bodies = [store.get(f"T{number}", 0, 0).messages[0].body for number in range(TOPICS)]
    assert bodies == [b"%d" % number for number in range(TOPICS)]
    with StoreReader.open(tmp_path) as reader:
        assert [message.body for message in reader.messages()] == bodies
