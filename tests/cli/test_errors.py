"""What cannot be opened or is asked in a wrong way: one line and the right exit code."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, Finished, pyledger, spawn

READERS = ("info", "cat", "verify", "repair", "rebuild")


def nothing(path: Path) -> Path:
    return path / "none"


def empty(path: Path) -> Path:
    return path


def file(path: Path) -> Path:
    (path / "file").write_text("x")
    return path / "file"


def foreign(path: Path) -> Path:
    (path / "readme.txt").write_text("x")
    return path


def inner(path: Path) -> Path:
    (path / "commitlog").mkdir()
    (path / "commitlog" / ("0" * 20)).write_bytes(bytes(4096))
    return path / "commitlog"


def two_members(path: Path) -> Path:
    for member in ("n0", "n1"):
        (path / f"dledger-{member}" / "data").mkdir(parents=True)
    return path


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "not there": nothing,
    "empty": empty,
    "a file": file,
    "foreign": foreign,
    "inner": inner,
    "DLedger, two members": two_members,
}


def is_one_line(found: Finished) -> bool:
    return found.err.count("\n") == 1 and found.err.startswith("pyledger: ") and "Traceback" not in found.err


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("kind", FOLDERS)
def test_what_is_no_store_cannot_be_opened(command: str, kind: str, tmp_path: Path) -> None:
    folder = FOLDERS[kind](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    found = pyledger(command, folder)
    assert found.code == 3
    assert is_one_line(found), found.err
    assert str(folder) in found.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", [("ledger", "read", "0"), ("bookie", "recover", "b1")])
def test_metadata_that_are_not_there_cannot_be_opened(command: tuple[str, ...], tmp_path: Path) -> None:
    found = pyledger(*command, "-m", f"sqlite:{tmp_path / 'cluster.db'}")
    assert found.code == 3
    assert is_one_line(found), found.err
    assert f"pyledger cluster format sqlite:{tmp_path / 'cluster.db'}" in found.err
    assert not list(tmp_path.iterdir())


def test_rocksdb_queues_leave_the_log_readable(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    queues = tmp_path / "consumequeue_rocksdb"
    queues.mkdir()
    (queues / "CURRENT").write_text("MANIFEST-000004\n")
    (queues / "MANIFEST-000004").write_bytes(b"")
    found = pyledger("info", tmp_path, "--json")
    assert found.code == 0
    assert [line["file"] for line in found.json if line["kind"] == "unusual"] == [str(queues)]


@pytest.mark.parametrize("command", [("cluster", "status"), ("cluster", "format"), ("ledger", "ls", "-m")])
@pytest.mark.parametrize("kind", [".", "/", "text", "fifo", "folder", "another program's"])
def test_a_file_that_is_no_metadata_stays_as_it_is(
    command: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "meta"
    if kind == "text":
        path.write_text("x" * 4096)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "another program's":
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE orders (id INTEGER)")
    before = {one: one.read_bytes() if one.is_file() else b"" for one in tmp_path.iterdir()}
    found = pyledger(*command, f"sqlite:{kind if len(kind) == 1 else 'meta'}")
    assert found.code == 3
    assert is_one_line(found), found.err
    assert before == {one: one.read_bytes() if one.is_file() else b"" for one in tmp_path.iterdir()}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog").chmod(0)
    try:
        found = pyledger("cat", tmp_path)
    finally:
        (tmp_path / "commitlog").chmod(0o700)
    assert found.code == 3
    assert is_one_line(found)


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat"],
        ["cat", "store", "--order", "time"],
        ["cat", "store", "--limit", "-1"],
        ["cat", "store", "--bdoy", "none"],
        ["grep", "(", "store"],
        ["export", "store", "out.xls"],
        ["export", "store", "out.parquet", "--body", "sha256"],
        ["repair", "store", "--file-size", "much"],
        ["write", "store"],
        ["info", ""],
        ["write", "", "--topic", "t"],
        ["serve", "--store", ""],
        ["bookie", "serve", "", "--dev", "1"],
    ],
)
def test_wrong_use_is_two(arguments: list[str]) -> None:
    found = pyledger(*arguments)
    assert found.code == 2
    assert "Error: " in found.err
    assert "Traceback" not in found.err


def test_query_wants_a_key_or_an_id(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert pyledger("query", tmp_path, "--topic", "t").code == 2
    assert pyledger("query", tmp_path, "--id", "xyz").code == 2


def test_dump_of_what_is_no_store_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", file(tmp_path)):
        found = pyledger("dump", path)
        assert found.code == 3
        assert is_one_line(found), found.err


def test_an_error_of_the_system_is_one_line(tmp_path: Path) -> None:
    found = spawn("bench", "--folder", tmp_path / "none", "--messages", "1000")
    assert found.code == 3
    assert is_one_line(found), found.err


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 5000 + ")" * 5000])
def test_a_pattern_that_cannot_be_compiled_is_wrong_use(pattern: str) -> None:
    found = pyledger("grep", pattern, "store", "--json")
    assert found.code == 2
    assert "is not a regular expression" in found.error["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("broker", "--store", "s", "-n", "HOST:1"),
        ("broker", "--store", "s", "-n", "a:" + "9" * 5000),
        ("dledger", "node", "--group", "g", "--id", "n0", "--store", "s", "--peers", "n0-HOST:1"),
        ("dledger", "status", "--peers", "n0-a:" + "9" * 5000),
        ("autorecovery", "serve", "-m", "zk://HOST:1/ledgers"),
    ],
)
def test_an_address_that_can_be_none_is_wrong_use(words: tuple[str, ...]) -> None:
    for host in ("x" * 300, "a..b", "\udcff"):
        found = pyledger(*(word.replace("HOST", host) for word in words), "--json")
        assert (found.code, found.error["exitCode"]) == (2, 2), found.err[:300]


def test_the_error_states_why_there_is_no_leader() -> None:
    found = pyledger("dledger", "status", "--peers", "n0-127.0.0.1:1", "--json")
    assert found.code == 1
    assert found.json[0]["id"] == "n0"
    assert found.err.count("\n") == 1
    assert found.error["exitCode"] == 1
    assert "no leader" in found.error["message"]
    assert "start n0" in found.error["message"]


def test_a_full_disk_is_told_in_json(tmp_path: Path) -> None:
    store, lines = tmp_path / "store", tmp_path / "lines.jsonl"
    lines.write_text('{"id": 1}\n')
    assert pyledger("write", store, "--topic", "T", lines).code == 0
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(
            [*COMMAND, "cat", store, "--json"],
            stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60, check=False,
        )  # fmt: skip
    assert found.returncode == 3
    assert "No space left" in json.loads(found.stderr)["message"]
