# The folders of a mapped file queue: list, create and remove its files.
import os

from pyledger import errors


cdef list segment_paths(tuple folders, bint readonly):
    """The mapped files of all folders, by start offset; a writer rejects foreign files."""
    cdef dict paths = {}
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    note_segment(paths, entry, f"{folder}/{entry.name}", readonly)
        except OSError as error:
            raise_errno(error.errno, folder, "list")
    return [paths[name] for name in sorted(paths)]


cdef int note_segment(dict paths, entry, str path, bint readonly) except -1:
    if is_offset_name(entry.name.removesuffix(COLD_SUFFIX)) and not entry.is_dir():
        if paths.setdefault(entry.name, path) != path and not readonly:
            raise errors.StoreFormatError(path, f"is also at {paths[entry.name]}",
                                          "move one of them elsewhere, then open the store again")
    elif not readonly and not entry.is_dir():
        raise errors.StoreFormatError(path, "does not belong into a folder of mapped files",
                                      "move it elsewhere, then open the store again")
    return 0


cdef int make_folder(str folder) except -1:
    """Create a folder and make its name durable."""
    if os.path.isdir(folder):
        return 0
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise_errno(error.errno, folder, "create")
    failed = sync_folder(os.fsencode(os.path.dirname(os.path.abspath(folder))))
    if failed != 0:
        raise_errno(failed, folder, "create")
    return 0


cdef int remove_file(str path) except -1:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise_errno(error.errno, path, "remove")
    return 0
