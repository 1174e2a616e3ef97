"""Errors about the members of a DLedger group."""

from pyledger.errors.base import EXIT_UNREACHABLE, EXIT_USAGE, PyLedgerError

REMEDIES = {
    "UNKNOWN_GROUP": "it is in another group: name that one, with `--group` at the command line",
    "UNKNOWN_MEMBER": "name members by the ids that they have in the group",
}
"""What to do, by what a member says."""


class DLedgerError(PyLedgerError):
    """A group of DLedger did not do what was asked."""

    code = 1800


class DLedgerRejectedError(DLedgerError):
    """A member refused a request; nothing was done."""

    code = 1801
    retriable = True

    def __init__(self, member: str, response_code: int, name: str) -> None:
        self.member, self.response_code = member, response_code
        remedy = f"; {REMEDIES[name]}" if name in REMEDIES else ""
        super().__init__(f"{member} refused: {response_code} {name}{remedy}")


class NoLeaderError(DLedgerError):
    """No member that answers leads the group."""

    code = 1802
    retriable = True
    exit_code = EXIT_UNREACHABLE

    def __init__(self, group: str, waited_ms: int) -> None:
        self.group, self.waited_ms = group, waited_ms
        super().__init__(f"group {group!r} had no leader within {waited_ms} ms; are most of its members up?")


class DLedgerTermError(DLedgerError):
    """A term for a member whose own is lost that is not above all that are known."""

    code = 1804
    exit_code = EXIT_USAGE

    def __init__(self, path: str, term: int, known: int) -> None:
        self.path, self.term, self.known = path, term, known
        super().__init__(
            f"{path}: term {term} is not above {known}, which it knows already; "
            "give one above those of all members"
        )


class OutcomeUnknownError(DLedgerError):
    """An append may or may not become an entry: its answer did not come, or came too early to tell."""

    code = 1803

    def __init__(self, member: str, why: str) -> None:
        self.member, self.why = member, why
        super().__init__(
            f"what became of an append to {member} is not known ({why}); appending it again may double it"
        )
