"""Arguments and options that several commands share, and what they mean to a reader."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from pyledger.cli.messages import BODY_CHOICES, BODY_HELP
from pyledger.cli.output import ProblemFoundError, WrongUseError, tell

SHOWN_CHARACTERS = 40
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
_AGO_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str) -> int:
    """A time as milliseconds since 1970-01-01 UTC.

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
        raise click.BadParameter(f"{text!r} is no time; give {examples}") from None


def parse_size(text: str) -> int:
    """A size in bytes.

    Args:
        text: The bytes, or a number with a unit such as 64KiB, 16MiB, 1GiB.
    """
    found = re.fullmatch(r"([0-9]{1,30}) ?(?:([KMG])(?:i?B)?|B)?", text, re.IGNORECASE)
    if not found:
        raise click.BadParameter(f"{text!r} is no size; give 1048576, 64KiB, 16MiB or 1GiB")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[(found[2] or "").upper()]


class Number(click.ParamType[int]):
    """A whole number within bounds; by default as long as any number of Java's."""

    name = "integer"

    def __init__(self, least: int = 0, most: int = INT64_MAX) -> None:
        """A type of numbers from `least` to `most`."""
        self.least, self.most = least, most

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002
        """The bounds, where they are narrow."""
        return None if self.most == INT64_MAX else f"{self.least}..{self.most}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of a text of ASCII digits, with a sign."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value) or not self.least <= int(value) <= self.most:
            shown = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "…"
            self.fail(f"{shown!r} is not a whole number from {self.least} to {self.most}", param, ctx)
        return int(value)


store_argument = click.argument("store", type=click.Path())
json_option = click.option("--json", "as_json", is_flag=True, help="JSON lines instead of text.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
if_exists_option = click.option("--if-exists", is_flag=True, help="What does not exist is not an error.")
body_option = click.option(
    "--body", type=click.Choice(BODY_CHOICES), default="auto", show_default=True, help=BODY_HELP
)
corrupt_option = click.option(
    "--on-corrupt",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Damage in the middle of the log: end with an error, or go on behind it and tell.",
)

_SELECTION = (
    click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times."),
    click.option("--queue", "queues", multiple=True, type=Number(), help="Only this queue id; repeatable."),
    click.option(
        "--from",
        "start_offset",
        type=Number(),
        help="First offset: a physical offset, or with --order queue a queue offset.",
    ),
    click.option("--to", "end_offset", type=Number(), help="End offset, itself not included."),
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
    click.option("--tail", type=Number(), help="Only the last so many of what is selected."),
)


def order_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that chooses between all records and what consumers can reach."""
    return click.option(
        "--order",
        type=click.Choice(["log", "queue"]),
        default=default,
        show_default=True,
        help="log: every record as appended. queue: what consumers can reach, by topic, queue and offset.",
    )


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose messages."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def selected_messages(reader: Any, order: str, selection: dict[str, Any]) -> Iterator[Any]:
    """The messages that the options choose; at the end, a topic that is not there is an error."""
    wanted = set(selection["topics"])
    missing = set(wanted)
    arguments = {name: None if value == () else value for name, value in selection.items()}
    arguments |= {"since_ms": arguments.pop("since"), "until_ms": arguments.pop("until")}
    for message in reader.messages(order, **arguments):
        missing.discard(message.topic)
        yield message
    require_topics(reader, missing)


def require_topics(reader: Any, topics: set[str]) -> None:
    """Raise for a topic that the store does not have, naming those that are meant or there."""
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
        else "there is none yet"
    )
    raise WrongUseError(f"no topic {missing[0]!r} in {reader.path}; {hint}")


def report_skipped(reader: Any) -> None:
    """Report what was skipped, and an end of the log that no clean shutdown leaves.

    Raises:
        ProblemFoundError: there is such an end, and damage was not to be skipped.
    """
    for damage in reader.skipped:
        size = f"{damage.size_bytes:,} bytes " if damage.size_bytes else ""
        tell(f"skipped {size}at physical offset {damage.physical_offset}: {damage.problem}")
    if (problem := end_problem(reader)) is None:
        return
    if reader.on_corrupt == "error":
        raise ProblemFoundError(f"{problem}; see `pyledger verify`")
    tell(problem)


def end_problem(reader: Any) -> str | None:
    """What ends the log of a store that was shut down cleanly, where that is not its last record."""
    if reader.lost_end is not None:
        return str(reader.lost_end.problem)
    if not (reader.clean and reader.stop.problem):
        return None
    return f"the log ends at physical offset {reader.stop.end_offset}: {reader.stop.problem}"
