"""Links and FIFOs in the place of files: nothing outside of a store is written, nothing is waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import StoreIOError
from pyledger.protocol.dledger.messages import TermState
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.files.meta_file import read_json, write_json
from tests.cli.command_line import own_case, pyledger, spawn

VICTIM = b"somebody else's\n" * 76
SMALL = DLedgerStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=1024)
# A part of a store, and a golden store that has it.
PARTS = {
    "commitlog": "rolled-5", "consumequeue": "rolled-5", "index": "index-5",
    "checkpoint": "rolled-5", "abort": "rolled-5", "lock": "rolled-5",
}  # fmt: skip


def last_file(store: Path, part: str) -> Path:
    """The last file of a folder, or the file itself."""
    place = store / part
    return max(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else place


def linked(file: Path, victim: Path) -> bytes:
    """Put a link to a file of somebody else, of the same length, in the place of a file; what is in that."""
    length = file.stat().st_size if file.exists() else len(VICTIM)
    content = (VICTIM * (length // len(VICTIM) + 1))[:length]
    victim.write_bytes(content)
    file.unlink(missing_ok=True)
    file.symlink_to(victim)
    return content


@pytest.mark.parametrize("command", ["repair", "write", "rebuild"])
@pytest.mark.parametrize("part", PARTS)
def test_no_command_writes_through_a_link(tmp_path: Path, part: str, command: str) -> None:
    store, lines = own_case(PARTS[part]).unpack(tmp_path / "case"), tmp_path / "lines.jsonl"
    lines.write_text('{"id": 1}\n')
    file = last_file(store, part)
    content = linked(file, tmp_path / "victim")
    options = ("--topic", "alpha", lines) if command == "write" else ()
    found = pyledger(command, store, *options, "--json")
    assert (tmp_path / "victim").read_bytes() == content
    if file.is_symlink() and found.code == 3:
        assert str(file) in found.error["message"]
        assert "symbolic link" in found.error["message"]
    assert "bug" not in found.err


def test_the_first_file_that_is_a_link_is_named(tmp_path: Path) -> None:
    store = own_case("rolled-5").unpack(tmp_path / "case")
    file = last_file(store, "commitlog")
    linked(file, tmp_path / "victim")
    found = pyledger("repair", store, "--json")
    assert found.code == 3
    problem = f"cannot truncate {file}: it is a symbolic link, which only folders"
    assert found.error["message"].startswith(problem)


def test_linked_folders_are_a_part_of_the_store(tmp_path: Path) -> None:
    store, elsewhere = own_case("rolled-5").unpack(tmp_path / "case"), tmp_path / "disk"
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": 1}\n')
    for part in ("commitlog", "consumequeue", "index"):
        if (store / part).exists():
            (elsewhere / part).parent.mkdir(exist_ok=True)
            (store / part).rename(elsewhere / part)
            (store / part).symlink_to(elsewhere / part)
    before = len(pyledger("cat", store, "--json").json)
    assert pyledger("write", store, "--topic", "linked", lines).code == 0
    assert len(pyledger("cat", store, "--json").json) == before + 1
    assert pyledger("verify", store).code == 0


@pytest.mark.parametrize("command", [("verify",), ("repair", "--dry-run"), ("info",), ("cat",)])
@pytest.mark.parametrize("part", PARTS)
def test_no_command_waits_for_a_fifo(tmp_path: Path, part: str, command: tuple[str, ...]) -> None:
    store = own_case(PARTS[part]).unpack(tmp_path / "case")
    file = last_file(store, part)
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    found = spawn(*command, store, "--json")
    assert found.code in {0, 1, 3}
    assert "bug" not in found.err


def test_a_fifo_among_the_index_files_is_reported(tmp_path: Path) -> None:
    store = own_case("index-5").unpack(tmp_path / "case")
    os.mkfifo(store / "index" / "20300101000000000")
    found = pyledger("verify", store, "--json")
    assert any("not an index file" in (line.get("detail") or "") for line in found.json)


def test_a_table_is_not_written_through_its_draft(tmp_path: Path) -> None:
    table = tmp_path / "topics.json"
    content = linked(tmp_path / "topics.json.tmp", tmp_path / "victim")
    with pytest.raises(StoreIOError, match=r"topics\.json\.tmp: it is a symbolic link"):
        write_json(table, {})
    assert (tmp_path / "victim").read_bytes() == content
    os.mkfifo(table)
    with pytest.raises(StoreIOError, match=r"topics\.json: it is not a regular file"):
        read_json(table)


def node_files(node: Path) -> dict[str, Callable[[], Path]]:
    return {
        "data": lambda: last_file(node, "data"),
        "index": lambda: last_file(node, "index"),
        "durable-end": lambda: node / "durable-end",
        "lock": lambda: node / "lock",
    }


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("link", "data"),
        ("link", "index"),
        ("link", "durable-end"),
        ("link", "lock"),
        ("fifo", "durable-end"),
        ("fifo", "lock"),
    ],
)
def test_a_dledger_node_rejects_odd_files(tmp_path: Path, kind: str, part: str) -> None:
    node, victim = tmp_path / "dledger-n0", tmp_path / "victim"
    with DLedgerStore(str(node), SMALL) as store:
        store.save_term_state(TermState(1))
        store.append_bodies(1, [bytes(200)] * 30)
        store.set_committed(store.end_index)
    file = node_files(node)[part]()
    victim.write_bytes(file.read_bytes())
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to(victim)
    before = victim.read_bytes()
    reason = "symbolic link" if kind == "link" else "not a regular file"
    with pytest.raises(StoreIOError, match=reason), DLedgerStore(str(node), SMALL) as store:
        store.append_bodies(1, [bytes(200)] * 30)
    assert victim.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_bookie_rejects_an_odd_mark(tmp_path: Path, kind: str) -> None:
    paths = BookiePaths((str(tmp_path / "journal"),), (str(tmp_path / "ledgers"),))
    BookieStore.open(paths, BookieConfig(), SystemClock()).close()
    mark = tmp_path / "ledgers" / "current" / "lastMark"
    victim = tmp_path / "victim"
    victim.write_bytes(mark.read_bytes())
    mark.unlink()
    if kind == "fifo":
        os.mkfifo(mark)
    else:
        mark.symlink_to(victim)
    before = victim.read_bytes()
    with pytest.raises(StoreIOError, match="symbolic link" if kind == "link" else "not a regular file"):
        BookieStore.open(paths, BookieConfig(), SystemClock()).close()
    assert victim.read_bytes() == before
