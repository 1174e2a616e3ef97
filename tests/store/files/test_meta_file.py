"""Small files: after a crash at any system call the old content is there, or the new one."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyledger.errors import StoreFormatError, StoreFullError, StoreIOError
from pyledger.store.files.meta_file import read_json, write_file, write_json

OLD, NEW = {"edition": 1}, {"edition": 2}


class PowerCut(BaseException):
    """The process ends here."""


def test_write_keeps_the_old_content_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for edition in range(3):
        write_json(path, {"edition": edition})
    assert read_json(path) == {"edition": 2}
    assert read_json(tmp_path / "topics.json.bak") == {"edition": 1}
    assert sorted(os.listdir(tmp_path)) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_crash_leaves_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, before: bool
) -> None:
    path = tmp_path / "topics.json"
    write_json(path, OLD)
    real: Callable[..., Any] = getattr(os, call)
    calls = 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number + 1 and before:
            raise PowerCut
        result = real(*args, **kwargs)
        if calls == number + 1:
            raise PowerCut
        return result

    with monkeypatch.context() as patched:
        patched.setattr(os, call, dying)
        try:
            write_json(path, NEW)
        except PowerCut:
            assert calls == number + 1
        else:
            assert calls <= number
    assert read_json(path) in (OLD, NEW)
    assert path.exists()
    write_json(path, NEW)
    assert read_json(path) == NEW


def test_content_is_flushed_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(handle: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def noting_replace(source: Path, target: Path) -> None:
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    write_file(tmp_path / "checkpoint", b"x", backup=False)
    assert done == ["file", "replace", "folder"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StoreFullError), (errno.EDQUOT, StoreFullError), (errno.EIO, StoreIOError)],
)
def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    path = tmp_path / "topics.json"
    write_json(path, OLD)

    def failing(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(kind, match=r"topics\.json"):
            write_json(path, NEW)
    assert read_json(path) == OLD
    assert os.listdir(tmp_path) == ["topics.json"]


@pytest.mark.parametrize("broken", [b"", b" \n", b"{", b"\xff\xfe"])
def test_backup_is_read_when_the_file_is_broken(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "topics.json"
    write_json(path, OLD)
    write_json(path, NEW)
    path.write_bytes(broken)
    assert read_json(path) == OLD
    assert path.read_bytes() == broken
    path.unlink()
    assert read_json(path) == OLD


def test_broken_file_without_backup_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text("{]")
    with pytest.raises(StoreFormatError, match="line 1, column 2"):
        read_json(tmp_path / "topics.json")


def test_a_folder_instead_of_it_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "topics.json").mkdir()
    with pytest.raises(StoreIOError, match=r"topics\.json"):
        read_json(tmp_path / "topics.json")
