"""Entries in a dict: what a bookie's rules stand on in tests."""

from collections.abc import Iterator


class DictStorage:
    """`EntryStorage` in memory."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, int], bytes] = {}

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        self.entries[ledger_id, entry_id] = entry

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        return self.entries.get((ledger_id, entry_id))

    def last_entry_id(self, ledger_id: int) -> int | None:
        return max((entry for ledger, entry in self.entries if ledger == ledger_id), default=None)

    def runs(self, ledger_id: int) -> Iterator[range]:
        start = stop = -1
        for entry_id in sorted(entry for ledger, entry in self.entries if ledger == ledger_id):
            if entry_id != stop:
                if stop > start:
                    yield range(start, stop)
                start = entry_id
            stop = entry_id + 1
        if stop > start:
            yield range(start, stop)
