"""The root of all errors, and errors of no single domain."""

from typing import ClassVar

EXIT_PROBLEM = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3


class PyLedgerError(Exception):
    """Root of all operating errors."""

    code: ClassVar[int] = 1000
    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = EXIT_PROBLEM


class ConfigError(PyLedgerError):
    """A setting is unknown or out of range."""

    code = 1100
    exit_code = EXIT_USAGE

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{field}: {problem}" + (f"; {remedy}" if remedy else ""))


class MissingExtraError(PyLedgerError, ImportError):
    """A package that an extra of PyLedger installs is missing."""

    code = 1150
    exit_code = EXIT_UNREACHABLE

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{what} needs {package}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra of PyLedger."""
    return f"pip install 'pyledger[{extra}]'"


class InvariantError(AssertionError):
    """A bug in PyLedger. Not a `PyLedgerError`, so that no handler catches it."""
