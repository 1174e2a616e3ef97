"""Truncate the log of a closed store where it diverges from the master's.

The removed bytes are on disk in a side folder before anything is changed; the next opening updates queues,
index and checkpoint.
"""

import os

from pyledger.store.files import checkpoint
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.disk_error import disk_errors
from pyledger.store.files.folder import CHECKPOINT_FILE, read_folder
from pyledger.store.files.lock import lock_store
from pyledger.store.maintenance.repair import new_side_folder, save_and_zero, truncate_steps
from pyledger.store.messages.opening import write_abort


def truncate_log(path: str | os.PathLike[str], offset: int) -> str | None:
    """Truncate the log of a closed store.

    Args:
        path: The store folder.
        offset: Physical offset (bytes) of the new end, where a record ends.

    Returns:
        The side folder with the removed bytes; None when the log ended at `offset`.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreIOError: a system call failed.

    Durability: removed bytes are on disk in the side folder before the log is changed.
    """
    root = os.fspath(path)
    with lock_store(root), disk_errors(root, "truncate"):
        steps = truncate_steps(read_folder(root), offset)
        if not steps:
            return None
        side = new_side_folder(root)
        # The checkpoint covers removed records: let the next opening check the whole log.
        write_abort(root)
        checkpoint.write(os.path.join(root, CHECKPOINT_FILE), StoreCheckpoint())
        for step in steps:
            with disk_errors(step.file, step.action):
                save_and_zero(step, side)
    return side
