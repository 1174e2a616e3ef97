"""Derived folders that were made beside the old ones are put into their places: the end of a rebuild.

Every folder is renamed twice, the old one away and the new one home, so a crash may leave a store without one
of them, its old one still beside. A writer puts that back before it looks at anything; a reader, which may
change nothing, finds it where it is (`home_of`).
"""

import os
from pathlib import Path

from pyledger.atomic_file import flush_folder
from pyledger.regular_file import open_regular
from pyledger.store.files.folder import DERIVED_FOLDERS, REBUILD_FOLDER, is_folder, set_aside


def swap_in(root: str) -> None:
    """Put the folders of `.rebuild` into their places. They are durable before the first is renamed."""
    beside = os.path.join(root, REBUILD_FOLDER)
    sync_tree(beside)
    flush_folder(Path(root))
    for name in DERIVED_FOLDERS:
        home, new = os.path.join(root, name), os.path.join(beside, name)
        if not os.listdir(new) and not is_folder(home):
            continue
        if is_folder(home):
            os.rename(home, set_aside(root, name))
        os.rename(new, home)
    flush_folder(Path(beside))
    flush_folder(Path(root))
    remove_tree(beside)
    flush_folder(Path(root))


def settle_swap(root: str) -> None:
    """Undo a swap that was cut off: old folders go back where nothing took their place. Under the lock."""
    beside = os.path.join(root, REBUILD_FOLDER)
    if not is_folder(beside):
        return
    for name in DERIVED_FOLDERS:
        old, home = set_aside(root, name), os.path.join(root, name)
        if is_folder(old) and not is_folder(home):
            os.rename(old, home)
    flush_folder(Path(root))
    remove_tree(beside)
    flush_folder(Path(root))


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it."""
    import shutil  # noqa: PLC0415 - loads packers that nobody needs

    shutil.rmtree(path)


def sync_tree(path: str) -> None:
    """Make every file and name below a folder durable."""
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb", opener=open_regular) as file:
                os.fsync(file.fileno())
        flush_folder(Path(folder))
