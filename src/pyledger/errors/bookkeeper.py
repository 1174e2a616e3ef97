"""Errors of ledgers and bookies."""

from pyledger.errors.base import EXIT_UNREACHABLE, PyLedgerError


class LedgerError(PyLedgerError):
    """Base of all errors of ledgers and bookies."""

    code = 1900


class EntryDigestError(LedgerError):
    """The digest of an entry or a LAC packet does not match."""

    code = 1901

    def __init__(self, ledger_id: int, entry_id: int | None, problem: str) -> None:
        self.ledger_id, self.entry_id, self.problem = ledger_id, entry_id, problem
        which = f"ledger {ledger_id}" if entry_id is None else f"ledger {ledger_id}, entry {entry_id}"
        super().__init__(f"{which}: {problem}; read it from another bookie, and check the password")


class LedgerFrameError(LedgerError):
    """A frame is not a valid request or response, or cannot be encoded."""

    code = 1902

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; check that the peer is a BookKeeper server or client")


class LedgerMetadataError(LedgerError):
    """Metadata of a ledger or a bookie is malformed, or a change would make it so."""

    code = 1903

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"metadata: {problem}")


class NoMetadataFileError(LedgerMetadataError):
    """The SQLite file of the metadata does not exist."""

    code = 1931
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} does not exist; `pyledger cluster format sqlite:{path}` creates a cluster")


class LedgerFileError(LedgerError):
    """A file of a bookie is damaged, or is not of the kind that its name states."""

    code = 1904

    def __init__(self, path: str, position: int, problem: str) -> None:
        self.path, self.position, self.problem = path, position, problem
        super().__init__(
            f"{path}, byte {position}: {problem}; `pyledger bookie verify` lists all faults, and "
            "`pyledger bookie recover` copies its entries from other bookies"
        )


class MetadataUnreachableError(LedgerError):
    """The metadata store does not respond. A requested change may have been made."""

    code = 1905
    retriable = True
    exit_code = EXIT_UNREACHABLE

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"metadata store {where}: {problem}; check its address and that it is running")


class NodeExistsError(LedgerError):
    """The node already exists in the metadata store."""

    code = 1906

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} already exists in the metadata store")


class NoNodeError(LedgerError):
    """The node does not exist in the metadata store."""

    code = 1907

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path} is not in the metadata store; check the root, or run `pyledger cluster format`"
        )


class NodeVersionError(LedgerError):
    """Another client has changed the node in the metadata store."""

    code = 1908
    retriable = True

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} was changed by another client; read it again")


class NodeNotEmptyError(LedgerError):
    """A node of the metadata store has children, so it cannot be removed."""

    code = 1909

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} has children; remove them first")


class BookieExistsError(LedgerError):
    """Another process has registered a bookie with this id."""

    code = 1910

    def __init__(self, bookie_id: str) -> None:
        self.bookie_id = bookie_id
        super().__init__(
            f"bookie {bookie_id!r} is registered by another process; stop that one, or choose another id"
        )


class NoSuchLedgerError(LedgerError):
    """The ledger does not exist."""

    code = 1911

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        super().__init__(f"ledger {ledger_id} does not exist; `pyledger ledger ls` lists all ledgers")


class LedgerExistsError(LedgerError):
    """A ledger with this id already exists."""

    code = 1912

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        super().__init__(
            f"ledger {ledger_id} already exists; choose another id, or give none to get a free one"
        )


class NotEnoughBookiesError(LedgerError):
    """Fewer bookies are writable than a ledger needs."""

    code = 1920
    retriable = True

    def __init__(self, needed: int, writable: int) -> None:
        self.needed, self.writable = needed, writable
        super().__init__(
            f"{needed} bookies are needed, {writable} are writable; start more, or use a smaller ensemble"
        )


class LedgerOperationError(LedgerError):
    """An operation on a ledger failed; `result` is BookKeeper's error code."""

    code = 1921

    def __init__(self, ledger_id: int, result: int, problem: str) -> None:
        self.ledger_id, self.result, self.problem = ledger_id, result, problem
        super().__init__(f"ledger {ledger_id}: {problem}")


class LedgerFencedError(LedgerOperationError):
    """Another client has recovered the ledger, so its writer cannot continue."""

    code = 1922


class LedgerClosedError(LedgerOperationError):
    """The ledger is closed and takes no adds, or this handle is closed."""

    code = 1923


class AddFailedError(LedgerOperationError):
    """An entry was not confirmed. It may still become part of the ledger: a recovery may find it."""

    code = 1924


class EntryReadError(LedgerOperationError):
    """An entry cannot be read now. It may still exist."""

    code = 1925
    retriable = True


class NoSuchEntryError(LedgerOperationError):
    """The ledger ends before the entry, or all of its bookies report that they do not have it."""

    code = 1926


class LedgerPasswordError(LedgerOperationError):
    """The password does not match the ledger."""

    code = 1927


class LedgerRecoveryError(LedgerOperationError):
    """The end of the ledger cannot be found now; it stays in recovery."""

    code = 1928
    retriable = True


class DuplicateEntryIdError(LedgerOperationError):
    """An entry with this id was already added."""

    code = 1929


class AutoRecoveryDisabledError(LedgerError):
    """Autorecovery is disabled for the whole cluster, so no entries are re-replicated."""

    code = 1930

    def __init__(self) -> None:
        super().__init__("autorecovery is disabled; `pyledger autorecovery enable` enables it")


class BookieCookieError(LedgerError):
    """The folders of a bookie are not those in which it acknowledged entries."""

    code = 1940

    def __init__(self, bookie_id: str, problem: str) -> None:
        self.bookie_id, self.problem = bookie_id, problem
        super().__init__(
            f"bookie {bookie_id!r}: {problem}; restore its folders, or re-replicate its ledgers and "
            "start an empty bookie with another id"
        )
