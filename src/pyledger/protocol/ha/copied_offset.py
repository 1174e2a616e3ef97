"""What a slave takes over of its master's offsets of consumers."""


def merged_offset(own: int | None, seen: int | None, master: int) -> int:
    """What a slave takes for a queue offset (units) of a group.

    Args:
        own: The slave's own; None: it has none.
        seen: The master's at the last copy; None: there was none.
        master: The master's now.
    """
    went_back = seen is not None and master < seen
    return master if own is None or went_back else max(own, master)
