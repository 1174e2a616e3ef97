"""Files that an interrupted archive run leaves in the folder of the commit log."""

import os
import re
from pathlib import Path

from pyledger._core import COLD_SUFFIX
from pyledger.atomic_file import flush_folder
from pyledger.store.files.folder import LOG_FOLDER, names_in

UNFINISHED_SUFFIX = ".tmp"
"""Suffix of a plain file, or of its segment before `.lz4`, while it is being written."""
_LEFT_OVER = re.compile(r"(00\d{18})(\.tmp|\.tmp\.lz4|\.lz4)", re.ASCII)


def remove_leftovers(root: str) -> None:
    """Remove unfinished files, and segments whose plain file still exists. Needs the store lock."""
    folder = os.path.join(root, LOG_FOLDER)
    names = set(names_in(folder))
    found = [hit for name in sorted(names) if (hit := _LEFT_OVER.fullmatch(name))]
    left = [hit[0] for hit in found if hit[2] != COLD_SUFFIX or hit[1] in names]
    for name in left:
        os.unlink(os.path.join(folder, name))
    if left:
        flush_folder(Path(folder))
