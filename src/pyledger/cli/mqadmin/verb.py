"""Options, brokers and output that the commands of `mqadmin` share."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click

from pyledger.cli.network import KEY_OPTIONS, client_of_options, namesrv_option, run_client
from pyledger.cli.output import WrongUseError, emit, printable, write_line
from pyledger.cli.parameters import INT64_MAX, json_option

F = TypeVar("F", bound=Callable[..., object])
Option = Callable[[F], F]
Work = Callable[..., Awaitable[None]]
MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}#[0-9]{2}:[0-9]{2}:[0-9]{2}:[0-9]{3}")

TOPIC = click.option("-t", "--topic", required=True, help="Name of the topic.")
GROUP = click.option("-g", "--groupName", "group", required=True, help="Name of the consumer group.")
BROKER = click.option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="At this broker.")
CLUSTER = click.option("-c", "--clusterName", "cluster", help="At all brokers of this cluster.")
OUTER = (
    namesrv_option("-n", "--namesrvAddr", "namesrv"),
    *KEY_OPTIONS,
    json_option,
)


@dataclass(frozen=True, slots=True)
class Printer:
    """Prints as upstream's mqadmin does, or as JSON lines."""

    as_json: bool

    def say(self, text: str) -> None:
        """Print a line that JSON output omits."""
        if not self.as_json:
            write_line(printable(text))

    def text(self, text: str) -> None:
        """Print text unchanged; JSON output omits it."""
        if not self.as_json:
            write_line(text)

    def done(self, text: str, **fields: object) -> None:
        """Print a line about a completed step, or its fields as JSON."""
        self.show(fields, printable(text))

    def show(self, fields: Mapping[str, Any], text: str) -> None:
        """Print text as upstream's mqadmin does, or fields as JSON."""
        emit(fields) if self.as_json else write_line(text)

    def table(
        self,
        pattern: str,
        heads: Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        **texts: Callable[[Any], str],
    ) -> None:
        """Print rows by a pattern of named columns.

        Args:
            pattern: A format string.
            heads: Headings that upstream's mqadmin prints.
            rows: Values by column.
            texts: Formatters of columns whose text differs from JSON.
        """
        if self.as_json:
            for row in rows:
                emit(row)
            return
        columns = re.findall(r"{(\w+)", pattern)
        write_line(pattern.format(**dict(zip(columns, heads, strict=True))))
        for row in rows:
            cells = {name: printable(texts.get(name, shown)(value)) for name, value in row.items()}
            write_line(pattern.format(**cells))


def shown(value: object) -> str:
    """Format a value as Java prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def verb(name: str, *options: Option[Any], table: dict[str, click.Command]) -> Callable[[Work], Work]:
    """Make a command of an async function that takes an admin client, a printer and the options."""

    def make(work: Work) -> Work:
        def run(namesrv: str, access_key: str, secret_key: str, as_json: bool, **given: Any) -> None:
            from pyledger.client.admin.admin import AsyncAdmin

            async def do() -> None:
                async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
                    await work(admin, Printer(as_json), **given)

            run_client(do())

        function: Any = run
        for option in reversed((*options, *OUTER)):
            function = option(function)
        table[name] = click.command(name, help=work.__doc__)(function)
        return work

    return make


async def chosen_brokers(admin: Any, broker: str | None, cluster: str | None) -> tuple[str, ...]:
    """Return the address of one broker, or those of the masters of a cluster."""
    if broker:
        return (broker.strip(),)
    if not cluster:
        raise WrongUseError("name a broker with -b HOST:PORT, or a cluster with -c NAME")
    found: tuple[str, ...] = await admin.master_addresses(cluster.strip())
    return found


def parse_moment(text: str) -> int:
    """Parse `now`, milliseconds, or `yyyy-MM-dd#HH:mm:ss:SSS` in the local time zone."""
    import time

    text = text.strip()
    if text == "now":
        return time.time_ns() // 1_000_000
    if re.fullmatch(r"-?[0-9]{1,30}", text) and abs(int(text)) <= INT64_MAX:
        return int(text)
    if MOMENT.fullmatch(text):
        try:
            moment = datetime.strptime(f"{text}000", "%Y-%m-%d#%H:%M:%S:%f").astimezone()
            return round(moment.timestamp() * 1000)
        except ValueError:
            pass
    raise click.BadParameter(f"{text!r} is not a time; give now, 1700000000000 or 2023-11-14#22:13:20:000")


def moment_text(timestamp_ms: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a time as upstream's mqadmin prints it, in the local time zone."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().strftime(pattern)


def precise_text(timestamp_ms: int) -> str:
    """Format a time as `moment_text` does, with milliseconds."""
    return f"{moment_text(timestamp_ms // 1000 * 1000)},{timestamp_ms % 1000:03}"
