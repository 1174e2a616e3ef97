"""How a refusal of the operating system becomes one of our errors: class, place, remedy, cause."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger import errors
from pyledger._core import CommitLog, MappedFile, MappedFileQueue


def refused_open(tmp_path: Path) -> None:
    MappedFile.open(str(tmp_path / "missing"))


def refused_create(tmp_path: Path) -> None:
    MappedFile.create(str(tmp_path / "no" / "folder"), 4096)


def refused_load(tmp_path: Path) -> None:
    MappedFileQueue(str(tmp_path / "missing"), 4096, readonly=True).load()


def refused_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    MappedFileQueue(str(tmp_path / "file" / "below"), 4096).load()


@pytest.mark.parametrize(
    ("refused", "number"),
    [
        (refused_open, errno.ENOENT),
        (refused_create, errno.ENOENT),
        (refused_load, errno.ENOENT),
        (refused_folder, errno.ENOTDIR),
    ],
)
def test_errno_becomes_an_io_error_that_names_the_path(
    tmp_path: Path, refused: Callable[[Path], None], number: int
) -> None:
    with pytest.raises(errors.StoreIOError) as raised:
        refused(tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert os.strerror(number) in str(raised.value)
    cause = raised.value.__cause__
    assert isinstance(cause, OSError)
    assert cause.errno == number


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_an_io_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(errors.StoreIOError, match="Permission denied"):
        MappedFileQueue(str(tmp_path / "commitlog"), 4096).load()


def test_states_have_their_own_classes(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), 4096)
    queue.load()
    log = CommitLog(queue)
    log.append("t", 0, b"")
    queue.close()
    with pytest.raises(errors.StoreClosedError) as closed:
        log.append("t", 0, b"")
    assert closed.value.path == str(tmp_path)
    reader = MappedFileQueue(str(tmp_path), 4096, readonly=True)
    reader.load()
    for use in (lambda: CommitLog(reader).append("t", 0, b""), lambda: reader.flush(0), reader.run_allocator):
        with pytest.raises(errors.ReadOnlyStoreError) as readonly:
            use()
        assert readonly.value.path == str(tmp_path)
