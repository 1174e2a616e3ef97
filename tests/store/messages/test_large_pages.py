"""Pages larger than 4 KiB: flushes, files of queues and keys, and cold segments work with them."""

from pathlib import Path

import pytest

from tests.fault_injection.shim import compiler, run_child

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")

STORY = """
    import sys
    from pathlib import Path

    from pyledger import _core
    from pyledger.model.message import Message
    from pyledger.store.messages.message_store import MessageStore
    from tests.store.cold.archived import archive_all, found, write_store

    path = Path(sys.argv[1])
    with MessageStore.open(path / "flushed", flush_disk_type="sync", mapped_file_size_bytes=1 << 20) as store:
        for number in range(60):
            store.put(Message("t", b"%d" % number * 1500, keys=f"k{number}"))
            store.flush()
        assert store.flushed_where == store.max_offset
        assert len(store.query("t", "k59")) == 1
    write_store(path / "cold")
    plain = found(path / "cold")
    archive_all(path / "cold")
    before = _core.limit_decompressed_bytes(1 << 17)
    for _ in range(3):
        # Blocks are given back while their neighbours are in use.
        assert found(path / "cold") == plain
    print("all there")
"""


def test_flushes_and_cold_segments(tmp_path: Path) -> None:
    assert run_child(STORY, tmp_path, str(tmp_path), shim="large_pages.c") == "all there\n"
