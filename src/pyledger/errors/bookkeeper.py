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


class NoMetadataFileError(LedgerMetadataError):
    """There is no such SQLite file of metadata."""

    code = 1931
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"there is no file {path}; `pyledger cluster format sqlite:{path}` makes a cluster")


class LedgerFileError(LedgerError):
    """A file of a bookie is damaged, or none of the kind that its name says."""

    code = 1904

    def __init__(self, path: str, position: int, problem: str) -> None:
        self.path, self.position, self.problem = path, position, problem
        super().__init__(
            f"{path}, byte {position}: {problem}; `pyledger bookie verify` lists all faults, and "
            "`pyledger bookie recover` copies what the bookie held from others"
        )


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


class NotEnoughBookiesError(LedgerError):
    """There are fewer bookies than a ledger needs."""

    code = 1920
    retriable = True

    def __init__(self, asked: int, there: int) -> None:
        self.asked, self.there = asked, there
        super().__init__(
            f"{asked} bookies are needed, {there} can be written to; start more, or ask for fewer"
        )


class LedgerOperationError(LedgerError):
    """Something done to a ledger has failed; `result` is BookKeeper's number for it."""

    code = 1921

    def __init__(self, ledger_id: int, result: int, problem: str) -> None:
        self.ledger_id, self.result, self.problem = ledger_id, result, problem
        super().__init__(f"ledger {ledger_id}: {problem}")


class LedgerFencedError(LedgerOperationError):
    """Somebody else has recovered a ledger, so its writer cannot go on."""

    code = 1922


class LedgerClosedError(LedgerOperationError):
    """A ledger is closed: nothing can be added, or this handle is closed."""

    code = 1923


class AddFailedError(LedgerOperationError):
    """An entry was not confirmed. Whether it is part of the ledger is not known: a recovery may find it."""

    code = 1924


class EntryReadError(LedgerOperationError):
    """An entry cannot be read now. That does not mean that there is none."""

    code = 1925
    retriable = True


class NoSuchEntryError(LedgerOperationError):
    """A ledger ends before an entry, or all of its bookies deny it."""

    code = 1926


class LedgerPasswordError(LedgerOperationError):
    """The password of a ledger is another one."""

    code = 1927


class LedgerRecoveryError(LedgerOperationError):
    """The end of a ledger cannot be known now; it stays in recovery."""

    code = 1928
    retriable = True


class DuplicateEntryIdError(LedgerOperationError):
    """An entry of this id was added already."""

    code = 1929


class AutoRecoveryDisabledError(LedgerError):
    """Copies are made by nobody: autorecovery is switched off for the whole cluster."""

    code = 1930

    def __init__(self) -> None:
        super().__init__("autorecovery is disabled; `pyledger autorecovery enable` switches it on")


class BookieCookieError(LedgerError):
    """A bookie's folders are not those that it had when it acknowledged entries."""

    code = 1940

    def __init__(self, bookie_id: str, problem: str) -> None:
        self.bookie_id, self.problem = bookie_id, problem
        super().__init__(
            f"bookie {bookie_id!r}: {problem}; bring its folders back, or let its ledgers be copied and "
            "start an empty one under another id"
        )
