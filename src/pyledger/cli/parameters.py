"""Arguments and options that several commands share."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from pyledger.cli.messages import BODY_CHOICES, BODY_HELP
from pyledger.cli.output import ProblemFoundError, WrongUseError, print_status

SHOWN_CHARACTERS = 40
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
_AGO_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str) -> int:
    """Return a time in milliseconds since 1970-01-01 UTC.

    Args:
        text: Those milliseconds, ISO 8601 (UTC unless it names a zone), or an age such as 90s, 15m, 2h, 7d.
    """
    if re.fullmatch(r"[0-9]{1,30}", text):
        return min(int(text), INT64_MAX)
    age = re.fullmatch(r"([0-9]{1,30})([smhd])", text)
    if age:
        return max(0, time.time_ns() // 1_000_000 - int(age[1]) * _AGO_MS[age[2]])
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        examples = "1700000000000, 2023-11-14T22:13:20 or an age such as 15m"
        raise click.BadParameter(f"{text!r} is not a time; give {examples}") from None


def parse_size(text: str) -> int:
    """Return a size in bytes.

    Args:
        text: The bytes, or a number with a unit such as 64KiB, 16MiB, 1GiB.
    """
    found = re.fullmatch(r"([0-9]{1,30}) ?(?:([KMG])(?:i?B)?|B)?", text, re.IGNORECASE)
    if not found:
        raise click.BadParameter(f"{text!r} is not a size; give 1048576, 64KiB, 16MiB or 1GiB")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[(found[2] or "").upper()]


class Number(click.ParamType[int]):
    """A whole number within bounds; by default from 0 to Java's largest `long`."""

    name = "integer"

    def __init__(self, least: int = 0, most: int = INT64_MAX) -> None:
        """Accept numbers from `least` to `most`."""
        self.least, self.most = least, most

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002
        """Return the bounds, or None when only a Java `long` bounds the number."""
        return None if self.most == INT64_MAX else f"{self.least}..{self.most}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse ASCII digits with an optional sign."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value) or not self.least <= int(value) <= self.most:
            shown = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "…"
            self.fail(f"{shown!r} is not a whole number from {self.least} to {self.most}", param, ctx)
        return int(value)


class NonEmptyPath(click.Path):
    """A path; the empty one, often an unset variable of a shell, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reject the empty path, and do as click does with any other."""
        if value == "":
            self.fail("the path is empty; name a file or a folder", param, ctx)
        return super().convert(value, param, ctx)


store_argument = click.argument("store", type=NonEmptyPath())
json_option = click.option("--json", "as_json", is_flag=True, help="JSON lines instead of text.")
yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation.")
if_exists_option = click.option("--if-exists", is_flag=True, help="Succeed when it does not exist.")
body_option = click.option(
    "--body", type=click.Choice(BODY_CHOICES), default="auto", show_default=True, help=BODY_HELP
)
corrupt_option = click.option(
    "--on-corrupt",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Damage in the middle of the log: stop with an error, or skip and report it.",
)

_SELECTION = (
    click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable."),
    click.option("--queue", "queues", multiple=True, type=Number(), help="Only this queue id; repeatable."),
    click.option(
        "--from",
        "start_offset",
        type=Number(),
        help="First offset: a physical offset, or with --order queue a queue offset.",
    ),
    click.option("--to", "end_offset", type=Number(), help="End offset (exclusive)."),
    click.option(
        "--since",
        type=parse_time,
        metavar="TIME",
        help="Stored at or after: ms, ISO 8601 or an age such as 15m.",
    ),
    click.option("--until", type=parse_time, metavar="TIME", help="Stored before."),
    click.option("--tags", metavar="EXPR", help="Tags as consumers write them: 'A || B', or *."),
    click.option("--key", help="Only messages that carry this key."),
    click.option("--limit", type=Number(), help="Stop after this many messages."),
    click.option("--tail", type=Number(), help="Only the last N selected messages."),
)


def order_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that selects all records or only those that consumers can reach."""
    return click.option(
        "--order",
        type=click.Choice(["log", "queue"]),
        default=default,
        show_default=True,
        help="log: every record as appended. queue: what consumers can reach, by topic, queue and offset.",
    )


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select messages."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def selected_messages(reader: Any, order: str, selection: dict[str, Any]) -> Iterator[Any]:
    """Yield the selected messages; at the end, raise for a topic that does not exist."""
    wanted = set(selection["topics"])
    missing = set(wanted)
    arguments = {name: None if value == () else value for name, value in selection.items()}
    for message in reader.messages(order=order, **arguments):
        missing.discard(message.topic)
        yield message
    require_topics(reader, missing)


def require_topics(reader: Any, topics: set[str]) -> None:
    """Raise for a topic that is not in the store; the error suggests similar topics."""
    known = sorted({topic for topic, _ in reader.queues()}) if topics else []
    missing = sorted(topics.difference(known))
    if not missing:
        return
    import difflib

    there = difflib.get_close_matches(missing[0], known, n=3) or known[:8]
    more = f" and {len(known) - 8} more" if there == known[:8] and len(known) > 8 else ""
    hint = (
        f"there {'is' if len(there) == 1 else 'are'} {', '.join(there)}{more}"
        if there
        else "the store has no topic yet"
    )
    raise WrongUseError(f"no topic {missing[0]!r} in {reader.path}; {hint}")


def report_skipped(reader: Any) -> None:
    """Report skipped damage, and a log that ends early although the shutdown was clean.

    Raises:
        ProblemFoundError: The log ends early, and damage must not be skipped.
    """
    for damage in reader.skipped:
        size = f"{damage.size_bytes:,} bytes " if damage.size_bytes else ""
        print_status(f"skipped {size}at physical offset {damage.physical_offset}: {damage.problem}")
    if (problem := end_problem(reader)) is None:
        return
    if reader.on_corrupt == "error":
        raise ProblemFoundError(f"{problem}; see `pyledger verify`")
    print_status(problem)


def end_problem(reader: Any) -> str | None:
    """Return why the log ends early although the shutdown was clean; None if it does not."""
    if reader.lost_end is not None:
        return str(reader.lost_end.problem)
    if not (reader.clean and reader.stop.problem):
        return None
    return f"the log ends at physical offset {reader.stop.end_offset}: {reader.stop.problem}"
