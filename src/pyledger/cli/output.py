"""Output of commands: JSON lines, text or a table on stdout, progress on stderr."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from typing import Any

import click

from pyledger.cli.streams import discard_output
from pyledger.errors import EXIT_PROBLEM, EXIT_UNREACHABLE, EXIT_USAGE

Advance = Callable[[int], None]
"""Called with the work done so far, in the unit of the total."""

# Control characters, and those that end a line or reverse its direction: never write them to a terminal.
_CONTROLS = (
    range(0x20),
    range(0x7F, 0xA0),
    range(0x2028, 0x202F),
    range(0x2066, 0x206A),
    range(0xD800, 0xE000),
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_EPOCH = datetime.fromtimestamp(0, UTC)


class WrongUseError(click.ClickException):
    """The request is not valid for this store or file."""

    exit_code = EXIT_USAGE


class ProblemFoundError(click.ClickException):
    """The store or file that was checked is damaged."""

    exit_code = EXIT_PROBLEM


class CannotReachError(click.ClickException):
    """A file or server that a command needs does not exist or cannot be opened."""

    exit_code = EXIT_UNREACHABLE


def printable(text: str) -> str:
    """Return text for one line of a terminal: control characters are escaped as in a Python string."""
    return text.translate(_escapes())


@cache
def _escapes() -> dict[int, str]:
    """Return the escape of each control character, by its number."""
    numbers = chain.from_iterable(_CONTROLS)
    return {number: chr(number).encode("unicode_escape").decode("ascii") for number in numbers}


def write_line(text: str) -> None:
    """Print one line on stdout."""
    sys.stdout.write(text + "\n")


def print_status(text: str) -> None:
    """Print one line on stderr, where summaries and errors are written."""
    sys.stderr.write(printable(text) + "\n")


def confirm(question: str) -> None:
    """Prompt on stderr, and end the command unless the answer is yes.

    Raises:
        UsageError: stdin ends before an answer; `--yes` avoids the question.
        ProblemFoundError: The answer is no.
    """
    sys.stderr.write(f"{printable(question)} [y/N]: ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        raise click.UsageError("stdin has no answer; use --yes")
    if answer.strip().lower() not in {"y", "yes"}:
        raise ProblemFoundError("nothing was deleted")


def report(text: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Report what a command did, as a JSON line on stdout or as text on stderr."""
    if as_json:
        emit(fields)
    else:
        print_status(text)


def emit(fields: Mapping[str, Any]) -> None:
    """Print one JSON line."""
    sys.stdout.write(json_line(fields) + "\n")


def write_done(text: str) -> None:
    """Print one line about a completed step; continue when the output pipe is closed."""
    try:
        write_line(text)
    except BrokenPipeError:
        discard_output()


def emit_done(fields: Mapping[str, Any]) -> None:
    """Print one JSON line; continue when the output pipe is closed."""
    write_done(json_line(fields))


def json_line(fields: Mapping[str, Any]) -> str:
    """Return fields as one line of JSON."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate, such as a byte of a path that is not UTF-8, cannot be encoded: escape it.
    return (
        text if text.isascii() or not _SURROGATE.search(text) else json.dumps(fields, separators=(",", ":"))
    )


def print_finding(found: Any, *, as_json: bool) -> None:
    """Print one finding of a check."""
    if as_json:
        emit(
            {
                "kind": "finding",
                "severity": found.severity,
                "finding": found.kind,
                "file": found.file,
                "offset": found.offset,
                "detail": found.detail,
            }
        )
        return
    where = found.file if found.offset is None else f"{found.file} @{found.offset}"
    write_line(printable(f"{found.severity}: {where}: {found.kind}: {found.detail}"))


def format_time(timestamp_ms: int | None) -> str:
    """Format a time (ms since 1970) as ISO 8601 in UTC; as a number beyond the calendar, empty for None."""
    if timestamp_ms is None:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_size(size_bytes: int) -> str:
    """Format a size (bytes) with a binary unit."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    power = min((size_bytes.bit_length() - 1) // 10, 4)
    return f"{size_bytes / (1 << 10 * power):.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def counted(count: int, noun: str, nouns: str | None = None) -> str:
    """Format a count with its noun: `1 file`, `1,024 files`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows: a drawn table on a terminal if rich is installed, else tab-separated lines."""
    if not (sys.stdout.isatty() and _has_rich()):
        write_line("\t".join(header))
        for row in rows:
            write_line("\t".join(_cell(cell) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = list(rows)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    for number, name in enumerate(header):
        numeric = all(isinstance(row[number], int | float | None) for row in found)
        table.add_column(name, overflow="fold", justify="right" if numeric else "left")
    for row in found:
        table.add_row(*(Text(f"{cell:,}" if type(cell) is int else _cell(cell)) for cell in row))
    Console().print(table)


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print JSON lines, or a table whose columns have the same names."""
    if as_json:
        for row in rows:
            emit(row)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def _has_rich() -> bool:
    """Return whether the package of the extra `console` is installed."""
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def _cell(value: object) -> str:
    return "" if value is None else printable(str(value))


@contextmanager
def progress(
    what: str, total: int | None, *, start: int = 0, unit: str = "bytes", show: bool = True
) -> Iterator[Advance]:
    """Show a progress bar on stderr if that is a terminal and rich is installed.

    Args:
        what: The action, such as "checking".
        total: Work to do; None if it is not known.
        start: Where the count starts, such as the physical offset (bytes) of a log's start.
        unit: `bytes`, or the plural of what is counted.
        show: False never shows a bar, which would wrap lines on the same terminal to its width.
    """
    if not (show and sys.stderr.isatty() and _has_rich()):
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    counter = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,} " + unit)
    columns = (TextColumn("{task.description}"), BarColumn(), counter, TimeRemainingColumn())
    # Data on the same terminal is drawn above the bar; data in a pipe is written unchanged.
    shared = sys.stdout.isatty()
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=shared,
        redirect_stderr=True,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done - start)
