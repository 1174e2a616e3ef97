"""Run a command; turn errors into one line and an exit code.

Exit codes: 0 done, 1 found a problem, 2 usage, 3 cannot reach or open, 70 bug in PyLedger, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from pyledger.cli import EXIT_INTERRUPTED
from pyledger.cli.streams import discard_output
from pyledger.errors import EXIT_UNREACHABLE, EXIT_USAGE, PyLedgerError, SendError

EXIT_BUG = 70


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    as_json = "--json" in arguments
    try:
        code = _run(arguments)
    except BrokenPipeError:
        discard_output()
        code = 0
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except PyLedgerError as error:
        code = _complain(str(error), _exit_code(error), as_json=as_json, error_code=error.code)
    except OSError as error:
        code = _complain(_describe(error), EXIT_UNREACHABLE, as_json=as_json)
    except MemoryError:
        code = _complain("out of memory", EXIT_UNREACHABLE, as_json=as_json)
    except Exception as error:
        if _is_argument_not_utf8(error, arguments):
            code = _complain("an argument is not valid UTF-8", EXIT_USAGE, as_json=as_json)
        else:
            code = _complain(_describe_bug(error), EXIT_BUG, as_json=as_json)
            if sys.flags.dev_mode:
                raise
    return _flush_output(code, as_json=as_json)


def _run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--version"]:  # the only answer that does not need click
        from pyledger import __version__

        sys.stdout.write(f"pyledger {__version__}\n")
        return 0
    import click

    from pyledger.cli.commands import cli

    as_json = "--json" in arguments
    try:
        if any("\0" in argument for argument in arguments):
            raise click.UsageError("an argument has a null character")
        code = cli.main(list(arguments), prog_name="pyledger", standalone_mode=False)
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        if as_json:
            return _complain(error.format_message(), error.exit_code, as_json=True)
        error.show()
        return error.exit_code
    except click.ClickException as error:
        cause = error.__cause__
        error_code = cause.code if isinstance(cause, PyLedgerError) else None
        return _complain(error.format_message(), error.exit_code, as_json=as_json, error_code=error_code)
    return code if isinstance(code, int) else 0


def _is_argument_not_utf8(error: Exception, arguments: Sequence[str]) -> bool:
    """Return True if an argument that must be text is not UTF-8. Paths may hold any bytes."""
    if not isinstance(error, UnicodeEncodeError):
        return False
    wrong = error.object[error.start]
    return "\ud800" <= wrong <= "\udfff" and any(wrong in argument for argument in arguments)


def _exit_code(error: PyLedgerError) -> int:
    """Return the error's exit code; for `SendError`, that of its cause."""
    cause = error.__cause__
    if isinstance(error, SendError) and isinstance(cause, PyLedgerError):
        return cause.exit_code
    return error.exit_code


def _flush_output(code: int, *, as_json: bool) -> int:
    """Flush stdout. A closed pipe is accepted; a full disk is an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        problem = f"cannot write the output: {error.strerror}"
        return code or _complain(problem, EXIT_UNREACHABLE, as_json=as_json)
    return code


def _complain(problem: str, code: int, *, as_json: bool = False, error_code: int | None = None) -> int:
    """Report an error as the last line on stderr; stdout holds only data."""
    from pyledger.cli.output import json_line, printable

    line = f"pyledger: {printable(problem)}"
    if as_json:
        line = json_line({"kind": "error", "exitCode": code, "code": error_code, "message": problem})
    with suppress(OSError):
        sys.stderr.write(line + "\n")
    return code


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _describe_bug(error: Exception) -> str:
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"this is a bug of PyLedger: {what} ({where}); `python -X dev -m pyledger` prints the traceback"
