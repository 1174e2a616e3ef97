"""Errors of bytes and text from outside."""

from pyledger.errors.base import EXIT_USAGE, PyLedgerError


class WireError(PyLedgerError):
    """Bytes or text from outside are not valid."""

    code = 1300


class MalformedJsonError(WireError):
    """A document is not JSON, nor the dialect of Java's fastjson."""

    code = 1301

    def __init__(self, line: int, column: int, problem: str) -> None:
        self.line, self.column, self.problem = line, column, problem
        super().__init__(f"line {line}, column {column}: {problem}")


class MalformedMessageIdError(WireError):
    """A message id is malformed."""

    code = 1302
    exit_code = EXIT_USAGE

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is not a message id; it needs 32 hex digits, or 56 with an IPv6 host")


class MalformedBatchError(WireError):
    """The body of a batch does not hold whole messages."""

    code = 1303

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(f"batch body at byte {position}: {problem}")


class FrameError(WireError):
    """Bytes of a connection are not a frame. The connection closes, since nothing after them is valid."""

    code = 1304

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; the connection was closed; check the protocol of the peer on this port")


class HeaderFieldError(WireError):
    """A required field of a command is missing, or a field cannot be parsed."""

    code = 1305

    def __init__(self, header: str, field: str, value: str | None) -> None:
        self.header, self.field, self.value = header, field, value
        found = "is missing" if value is None else f"cannot be {value[:100]!r}"
        super().__init__(f"{header}: the field {field} {found}")


class MalformedBodyError(WireError):
    """The body of a command does not match its code."""

    code = 1306

    def __init__(self, kind: str, place: str, problem: str) -> None:
        self.kind, self.place, self.problem = kind, place, problem
        super().__init__(f"{kind}{place}: {problem}")


class MalformedRecordError(WireError):
    """A broker sent bytes that are not a record of a commit log."""

    code = 1307

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(
            f"record at byte {position} of a response: {problem}; check that the peer is a broker"
        )
