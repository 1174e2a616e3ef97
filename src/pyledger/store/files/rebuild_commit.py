"""The end of a rebuild: new queue and index folders replace the old ones.

For each folder, the old one is moved to `.rebuild`, then the new one is renamed. A crash between the two
leaves the store without the folder. A writer moves the old one back before it reads anything; a reader, which
changes nothing, reads it in `.rebuild` (`derived_folder`).
"""

import os
from pathlib import Path

from pyledger.atomic_file import flush_folder
from pyledger.regular_file import open_regular
from pyledger.store.files.folder import DERIVED_FOLDERS, REBUILD_FOLDER, is_folder, replaced_folder
from pyledger.system_calls import flush_file


def commit_rebuild(root: str) -> None:
    """Replace the derived folders by those in `.rebuild`, which are durable before the first rename."""
    rebuild = os.path.join(root, REBUILD_FOLDER)
    sync_tree(rebuild)
    flush_folder(Path(root))
    for name in DERIVED_FOLDERS:
        current, new = os.path.join(root, name), os.path.join(rebuild, name)
        if not os.listdir(new) and not is_folder(current):
            continue
        if is_folder(current):
            os.rename(current, replaced_folder(root, name))
        os.rename(new, current)
    flush_folder(Path(rebuild))
    flush_folder(Path(root))
    remove_tree(rebuild)
    flush_folder(Path(root))


def undo_rebuild(root: str) -> None:
    """Move old folders of an interrupted rebuild back where no new one exists. Needs the store lock."""
    rebuild = os.path.join(root, REBUILD_FOLDER)
    if not is_folder(rebuild):
        return
    for name in DERIVED_FOLDERS:
        old, current = replaced_folder(root, name), os.path.join(root, name)
        if is_folder(old) and not is_folder(current):
            os.rename(old, current)
    flush_folder(Path(root))
    remove_tree(rebuild)
    flush_folder(Path(root))


def remove_tree(path: str) -> None:
    """Remove a folder with its contents."""
    import shutil  # noqa: PLC0415 - loads compression modules that are not needed

    shutil.rmtree(path)


def sync_tree(path: str) -> None:
    """Make all files and names below a folder durable."""
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb", opener=open_regular) as file:
                flush_file(file.fileno())
        flush_folder(Path(folder))
