"""Errors about bytes and text from outside."""

from pyledger.errors.base import EXIT_USAGE, PyLedgerError


class WireError(PyLedgerError):
    """Bytes or text from outside that we cannot accept."""

    code = 1300


class MalformedJsonError(WireError):
    """A document is not JSON, not even the dialect of Java's fastjson."""

    code = 1301

    def __init__(self, line: int, column: int, problem: str) -> None:
        self.line, self.column, self.problem = line, column, problem
        super().__init__(f"line {line}, column {column}: {problem}")


class MalformedMessageIdError(WireError):
    """A message id that names no place."""

    code = 1302
    exit_code = EXIT_USAGE

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is no message id; one has 32 hex digits, or 56 with an IPv6 host")


class MalformedBatchError(WireError):
    """The body of a batch does not hold whole messages."""

    code = 1303

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(f"batch body at byte {position}: {problem}")


class FrameError(WireError):
    """Bytes of a connection that are no frame. Nothing after them can be trusted: the connection ends."""

    code = 1304

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; the connection cannot go on, check what the peer speaks on this port")


class HeaderFieldError(WireError):
    """A command lacks a field that it must have, or the field cannot be read."""

    code = 1305

    def __init__(self, header: str, field: str, value: str | None) -> None:
        self.header, self.field, self.value = header, field, value
        found = "is missing" if value is None else f"cannot be {value[:100]!r}"
        super().__init__(f"{header}: the field {field} {found}")


class MalformedBodyError(WireError):
    """The body of a command does not hold what its code promises."""

    code = 1306

    def __init__(self, kind: str, place: str, problem: str) -> None:
        self.kind, self.place, self.problem = kind, place, problem
        super().__init__(f"{kind}{place}: {problem}")


class MalformedRecordError(WireError):
    """What a broker sent is no record of a commit log."""

    code = 1307

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(
            f"record at byte {position} of an answer: {problem}; check what answers at the broker"
        )
