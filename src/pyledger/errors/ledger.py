"""Errors about ledgers and bookies."""

from pyledger.errors.base import PyLedgerError


class LedgerError(PyLedgerError):
    """Something about ledgers and bookies."""

    code = 1900


class EntryDigestError(LedgerError):
    """An entry or a LAC packet is not what its writer made."""

    code = 1901

    def __init__(self, ledger_id: int, entry_id: int | None, problem: str) -> None:
        self.ledger_id, self.entry_id, self.problem = ledger_id, entry_id, problem
        which = f"ledger {ledger_id}" if entry_id is None else f"ledger {ledger_id}, entry {entry_id}"
        super().__init__(f"{which}: {problem}; another bookie may have it whole; is the password right?")


class LedgerFrameError(LedgerError):
    """A frame is no request or answer of a bookie, or there is no way to write one."""

    code = 1902

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; check that the peer speaks BookKeeper's protocol")


class LedgerMetadataError(LedgerError):
    """Metadata of a ledger or a bookie is malformed, or would be after a change."""

    code = 1903

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"metadata: {problem}")


class LedgerFileError(LedgerError):
    """A file of a bookie is damaged, or none of the kind that its name says."""

    code = 1904

    def __init__(self, path: str, position: int, problem: str) -> None:
        self.path, self.position, self.problem = path, position, problem
        super().__init__(f"{path}, byte {position}: {problem}; `pyledger bookie verify` lists all faults")
