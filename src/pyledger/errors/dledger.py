"""Errors of the members of a DLedger group."""

from pyledger.errors.base import EXIT_UNREACHABLE, EXIT_USAGE, PyLedgerError

REMEDIES = {
    "UNKNOWN_GROUP": "the member is in another group: give its group, on the command line with `--group`",
    "UNKNOWN_MEMBER": "use the ids that members have in the group",
}
"""What to do next, by name of a member's response code."""


class DLedgerError(PyLedgerError):
    """A DLedger group did not complete a request."""

    code = 1800


class DLedgerRejectedError(DLedgerError):
    """A member rejected a request; nothing changed."""

    code = 1801
    retriable = True

    def __init__(self, member: str, response_code: int, name: str) -> None:
        self.member, self.response_code = member, response_code
        remedy = f"; {REMEDIES[name]}" if name in REMEDIES else ""
        super().__init__(f"{member} rejected the request: {response_code} {name}{remedy}")


class NoLeaderError(DLedgerError):
    """No reachable member leads the group."""

    code = 1802
    retriable = True
    exit_code = EXIT_UNREACHABLE

    def __init__(self, group: str, waited_ms: int) -> None:
        self.group, self.waited_ms = group, waited_ms
        super().__init__(
            f"group {group!r} had no leader within {waited_ms} ms; check that a majority is running"
        )


class DLedgerTermError(DLedgerError):
    """The term given for a member that lost its own is not above all known terms."""

    code = 1804
    exit_code = EXIT_USAGE

    def __init__(self, path: str, term: int, known: int) -> None:
        self.path, self.term, self.known = path, term, known
        super().__init__(
            f"{path}: term {term} is not above {known}, which is already recorded; "
            "give a term above those of all members"
        )


class OutcomeUnknownError(DLedgerError):
    """The outcome of an append is not known: no response arrived, or it arrived too early."""

    code = 1803

    def __init__(self, member: str, why: str) -> None:
        self.member, self.why = member, why
        super().__init__(
            f"the outcome of an append to {member} is not known ({why}); a retry may append it twice"
        )
