"""Cuts the log of a closed store at a place, on purpose: what comes behind is not the master's.

The cut bytes are on disk in a side folder before anything is changed; the next opening brings queues, index
and checkpoint in step with what is left.
"""

import os
import time

from pyledger.errors import StoreIOError
from pyledger.store.files import checkpoint
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import CHECKPOINT_FILE, REPAIR_PREFIX, read_folder
from pyledger.store.files.lock import lock_store
from pyledger.store.maintenance.repair import cut_steps, keep_and_cut
from pyledger.store.messages.opening import write_abort


def cut_log(path: str | os.PathLike[str], offset: int) -> str | None:
    """Cut the log of a closed store.

    Args:
        path: The store folder.
        offset: Physical offset (bytes) of the new end, where a record ends.

    Returns:
        The side folder with the cut bytes; None when there was nothing behind the place.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreIOError: the operating system refused.

    Durability: cut bytes are on disk in the side folder before the log is changed.
    """
    root = os.fspath(path)
    with lock_store(root):
        steps = cut_steps(read_folder(root), offset)
        if not steps:
            return None
        side = os.path.join(root, REPAIR_PREFIX + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        # What was vouched for is not there any more: the next opening looks at all of it.
        write_abort(root)
        checkpoint.write(os.path.join(root, CHECKPOINT_FILE), StoreCheckpoint())
        for step in steps:
            try:
                keep_and_cut(step, side)
            except OSError as error:
                raise StoreIOError(step.file, step.action, error.strerror or str(error)) from error
    return side
