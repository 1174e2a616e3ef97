"""`pyledger ledger`: ledgers of a cluster of bookies, Java's or ours."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pyledger.cli.bookkeeper.ledger_copies import COMMANDS as COPIES_COMMANDS
from pyledger.cli.bookkeeper.options import client_of, metadata_option
from pyledger.cli.messages import text_or_base64
from pyledger.cli.network import run_client
from pyledger.cli.output import confirm, counted, emit, print_status, printable, write_line
from pyledger.cli.parameters import Number, json_option, yes_option
from pyledger.cli.store.rows import read_lines

EXAMPLES = """\b
Examples:
  pyledger ledger write -m sqlite:meta --password pw first second
  pyledger ledger read -m sqlite:meta --password pw 0
  pyledger ledger ls -m zk://127.0.0.1:2181/ledgers --json
"""
F = TypeVar("F", bound=Callable[..., object])
_SHOWN_CHARACTERS = 200

password_option = click.option(
    "--password", default="", envvar="PYLEDGER_PASSWORD", show_envvar=True, help="Of the ledger."
)
ledger_argument = click.argument("ledger_id", metavar="LEDGER", type=Number())
QUORUM_OPTIONS = (
    click.option("--ensemble", default=3, show_default=True, type=Number(1), help="Bookies to spread over."),
    click.option("--write-quorum", default=2, show_default=True, type=Number(1), help="Replicas per entry."),
    click.option(
        "--ack-quorum",
        default=2,
        show_default=True,
        type=Number(1),
        help="Replicas on disk before an entry is confirmed.",
    ),
    click.option(
        "--digest",
        default="CRC32C",
        show_default=True,
        type=click.Choice(["CRC32", "CRC32C", "HMAC", "DUMMY"]),
        help="Checksum of the entries.",
    ),
)


def quorum_options(function: F) -> F:
    """Add the options for the quorums and the digest of a new ledger."""
    for option in reversed(QUORUM_OPTIONS):
        function = option(function)
    return function


@click.group("ledger", epilog=EXAMPLES)
def command() -> None:
    """Ledgers of BookKeeper's bookies, or ours."""


for _one in COPIES_COMMANDS:
    command.add_command(_one)


async def make(
    client: Any,
    sizes: tuple[int, int, int],
    digest: str,
    password: str,
    custom: dict[str, bytes] | None = None,
    ledger_id: int | None = None,
) -> Any:
    """Create a ledger, open for writing."""
    from pyledger.protocol.bookkeeper.entry import DigestType

    names = ("ensemble_size", "write_quorum_size", "ack_quorum_size")
    named = dict(zip(names, sizes, strict=True))
    return await client.create(
        **named,
        digest=DigestType[digest],
        password=password.encode(),
        custom=custom,
        ledger_id=ledger_id,
    )


@command.command("create")
@metadata_option
@quorum_options
@password_option
@click.option("--custom", multiple=True, metavar="KEY=VALUE", help="The application's own metadata.")
@click.option("--id", "ledger_id", type=Number(), help="Id of the ledger.  [default: the next free one]")
@json_option
def create(
    metadata: str,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password: str,
    custom: tuple[str, ...],
    ledger_id: int | None,
    as_json: bool,
) -> None:
    """Create an empty ledger, and close it. To fill one use `write`: a ledger has a single writer."""
    pairs = {key: value.encode() for key, _, value in (one.partition("=") for one in custom)}

    async def work() -> None:
        async with client_of(metadata) as client:
            sizes = (ensemble, write_quorum, ack_quorum)
            writer = await make(client, sizes, digest, password, custom=pairs, ledger_id=ledger_id)
            print_metadata(writer.ledger_id, await writer.close(), as_json)

    run_client(work())


@command.command("write")
@metadata_option
@quorum_options
@password_option
@click.option("--no-close", is_flag=True, help="Leave the ledger open, like a writer that was killed.")
@click.argument("bodies", nargs=-1)
@json_option
def write(
    metadata: str,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password: str,
    no_close: bool,
    bodies: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a ledger, add each of BODIES or each line of stdin as an entry, and close it."""

    async def work() -> None:
        lines = (body.encode() for body in bodies) if bodies else _stdin_lines()
        async with client_of(metadata) as client:
            writer = await make(client, (ensemble, write_quorum, ack_quorum), digest, password)
            print_status(f"ledger {writer.ledger_id}")
            last = await writer.add_many(lines)
            await (writer.abandon() if no_close else writer.close())
            fields = {"ledgerId": writer.ledger_id, "lastEntryId": last, "length": writer.length}
            if as_json:
                emit(fields | {"closed": not no_close})
            else:
                state = "open" if no_close else "closed"
                entries = counted(last + 1, "entry", "entries")
                write_line(f"{writer.ledger_id} {state} {entries} {writer.length} bytes")

    run_client(work())


def _stdin_lines() -> Any:
    return (line.rstrip(b"\r\n") for line in read_lines(sys.stdin.buffer))


@command.command("read")
@metadata_option
@password_option
@click.option("--from", "first", default=0, type=Number(), help="First entry.")
@click.option("--to", "last", type=Number(), help="Last entry.")
@click.option("--unconfirmed", is_flag=True, help="With --to: also entries that a recovery may remove.")
@ledger_argument
@json_option
def read(
    metadata: str,
    password: str,
    first: int,
    last: int | None,
    unconfirmed: bool,
    ledger_id: int,
    as_json: bool,
) -> None:
    """Print the entries of LEDGER. Does not affect its writer; see `recover`."""

    async def work() -> None:
        async with client_of(metadata) as client:
            reader = await client.open(ledger_id, password.encode(), recover=False)
            async for entry in reader.read(first, last, unconfirmed=unconfirmed):
                print_entry(entry, as_json)

    run_client(work())


@command.command("tail")
@metadata_option
@password_option
@click.option("--from", "first", default=0, type=Number(), help="First entry.")
@ledger_argument
@json_option
def tail(metadata: str, password: str, first: int, ledger_id: int, as_json: bool) -> None:
    """Print the entries of LEDGER as they are confirmed, until it is closed."""

    async def work() -> None:
        async with (
            client_of(metadata) as client,
            await client.open(ledger_id, password.encode(), recover=False) as reader,
        ):
            async for entry in reader.tail(first):
                print_entry(entry, as_json)
                sys.stdout.flush()

    run_client(work())


@command.command("ls")
@metadata_option
@json_option
def list_ledgers(metadata: str, as_json: bool) -> None:
    """List all ledgers with their states."""

    async def work() -> None:
        from pyledger.errors import NoSuchLedgerError

        async with client_of(metadata) as client:
            async for ledger_id in client.ledgers():
                try:
                    found = await client.metadata(ledger_id)
                except NoSuchLedgerError:
                    continue  # deleted in the meantime
                print_metadata(ledger_id, found, as_json)

    run_client(work())


@command.command("info")
@metadata_option
@ledger_argument
@json_option
def info(metadata: str, ledger_id: int, as_json: bool) -> None:
    """Print the metadata of LEDGER."""

    async def work() -> Any:
        async with client_of(metadata) as client:
            return await client.metadata(ledger_id)

    found = metadata_fields(ledger_id, run_client(work()))
    if as_json:
        emit(found)
        return
    for name, value in found.items():
        write_line(f"{name}\t{_shown(value)}".rstrip())


@command.command("recover")
@metadata_option
@password_option
@ledger_argument
@json_option
def recover(metadata: str, password: str, ledger_id: int, as_json: bool) -> None:
    """Recover LEDGER: fence its writer, find its last entry, copy what may be confirmed, and close it."""

    async def work() -> None:
        async with client_of(metadata) as client:
            reader = await client.open(ledger_id, password.encode())
            print_metadata(ledger_id, reader.metadata, as_json)

    run_client(work())


@command.command("delete")
@metadata_option
@yes_option
@ledger_argument
@json_option
def delete(metadata: str, yes: bool, ledger_id: int, as_json: bool) -> None:
    """Delete LEDGER. Bookies free its space at their next garbage collection."""
    if not yes:
        confirm(f"Delete ledger {ledger_id}?")

    async def work() -> None:
        async with client_of(metadata) as client:
            await client.delete(ledger_id)

    run_client(work())
    if as_json:
        emit({"ledgerId": ledger_id, "deleted": True})
    else:
        print_status(f"ledger {ledger_id} is deleted")


@command.command("bench")
@metadata_option
@quorum_options
@click.option("--size", default=256, show_default=True, type=Number(), help="Bytes of an entry.")
@click.option("--in-flight", default=1000, show_default=True, type=Number(1), help="Adds in flight.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(min=0.1), help="How long.")
@json_option
def bench(
    metadata: str,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    size: int,
    in_flight: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure adds of SIZE bytes to a temporary ledger, and reads; the ledger is deleted at the end."""
    from pyledger.cli.bookkeeper.ledger_bench import measure

    async def work() -> dict[str, Any]:
        async with client_of(metadata) as client:
            writer = await make(client, (ensemble, write_quorum, ack_quorum), digest, "")
            try:
                return await measure(client, writer, bytes(size), in_flight, seconds)
            finally:
                await client.delete(writer.ledger_id)

    found = run_client(work())
    if as_json:
        emit(found)
    else:
        write_line(
            f"{found['addsPerSecond']:,} adds/s, half within {found['p50Ms']} ms, 99 % within "
            f"{found['p99Ms']} ms; {found['readsPerSecond']:,} reads/s"
        )


# --- output


def print_entry(entry: Any, as_json: bool) -> None:
    """Print one entry, as JSON or as a line."""
    if as_json:
        fields = {"ledgerId": entry.ledger_id, "entryId": entry.entry_id, "lac": entry.last_add_confirmed}
        size = {"length": entry.length, "payloadSize": len(entry.payload)}
        emit(fields | size | text_or_base64(entry.payload))
        return
    text = printable(entry.payload.decode("utf-8", "replace"))
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    write_line(f"{entry.ledger_id}:{entry.entry_id} {shown}".rstrip())


def _shown(value: Any) -> str:
    """Return a field of metadata as readable text."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shown(one)}" for name, one in value.items())
    if isinstance(value, list):
        return " ".join(value)
    return "" if value is None else printable(str(value))


def metadata_fields(ledger_id: int, found: Any) -> dict[str, Any]:
    """Return metadata as JSON fields, without the password."""
    return {
        "ledgerId": ledger_id,
        "state": found.state.name,
        "lastEntryId": found.last_entry_id,
        "length": found.length,
        "ensembleSize": found.ensemble_size,
        "writeQuorumSize": found.write_quorum,
        "ackQuorumSize": found.ack_quorum,
        "digestType": None if found.digest is None else found.digest.name,
        "ensembles": {str(one.first_entry_id): list(one.ensemble) for one in found.segments},
        "customMetadata": {key: value.decode("utf-8", "replace") for key, value in found.custom.items()},
        "ctime": found.ctime,
        "metadataFormatVersion": found.format_version,
    }


def print_metadata(ledger_id: int, found: Any, as_json: bool) -> None:
    """Print the metadata of one ledger, as JSON or as a line."""
    if as_json:
        emit(metadata_fields(ledger_id, found))
        return
    sizes = f"{found.ensemble_size}/{found.write_quorum}/{found.ack_quorum}"
    end = f" last entry {found.last_entry_id} {found.length} bytes" if found.closed else ""
    write_line(f"{ledger_id} {found.state.name} {sizes}{end}")
