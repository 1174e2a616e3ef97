"""Errors about ledgers and bookies."""

from pyledger.errors.base import EXIT_UNREACHABLE, PyLedgerError


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


class MetadataUnreachableError(LedgerError):
    """The metadata store does not answer. A change that was asked for may have been made."""

    code = 1905
    retriable = True
    exit_code = EXIT_UNREACHABLE

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"metadata store {where}: {problem}; check that it runs, and its address")


class NodeExistsError(LedgerError):
    """There is such a node in the metadata store already."""

    code = 1906

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} exists in the metadata store")


class NoNodeError(LedgerError):
    """There is no such node in the metadata store."""

    code = 1907

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is not in the metadata store; was the cluster formatted, under this root?")


class NodeVersionError(LedgerError):
    """Somebody else has changed a node of the metadata store."""

    code = 1908
    retriable = True

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} was changed by somebody else; read it again")


class NodeNotEmptyError(LedgerError):
    """A node of the metadata store has children, so it cannot be removed."""

    code = 1909

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} has children; remove them first")


class BookieExistsError(LedgerError):
    """A bookie of this id is registered by somebody else."""

    code = 1910

    def __init__(self, bookie_id: str) -> None:
        self.bookie_id = bookie_id
        super().__init__(
            f"bookie {bookie_id!r} is registered by another process; stop that one, or choose another id"
        )


class NoSuchLedgerError(LedgerError):
    """There is no such ledger."""

    code = 1911

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"there is no ledger {ledger_id}; `pyledger ledger ls` lists them")


class LedgerExistsError(LedgerError):
    """There is a ledger of this id already."""

    code = 1912

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"ledger {ledger_id} exists; choose another id, or let one be chosen")
