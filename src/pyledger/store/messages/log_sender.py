"""What brings a store's log to a slave: frames from mapped memory into a socket, see `LogSender`."""

from pyledger._core import LogSender, LogView

__all__ = ["LogSender", "part_of_view"]


def part_of_view(view: LogView, start: int, stop: int) -> LogView:
    """A view of only those files that hold a range, physical offsets in bytes: it keeps no other on disk."""
    size = view.file_size_bytes
    files = tuple(one for one in view.files if one.start_offset + size > start and one.start_offset < stop)
    return LogView(files, min(view.end_offset, files[-1].start_offset + size))
