"""`pyledger bookie`: the folders of BookKeeper's bookies."""

import zlib
from typing import Any

import click

from pyledger.cli.bookkeeper.bookie_recover import command as recover_command
from pyledger.cli.bookkeeper.bookie_serve import command as serve_command
from pyledger.cli.bookkeeper.options import require_protobuf
from pyledger.cli.messages import text_or_base64
from pyledger.cli.output import counted, emit, print_finding, print_status, printable, write_line
from pyledger.cli.parameters import NonEmptyPath, Number, json_option
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger bookie dump bookie-1 --ledger 1 --limit 10
  pyledger bookie verify bookie-1
"""
_SHOWN_CHARACTERS = 200


@click.group("bookie", epilog=EXAMPLES)
def command() -> None:
    """Run a bookie, or read and check its entries."""


command.add_command(serve_command)
command.add_command(recover_command)


folder_argument = click.argument("folders", metavar="FOLDER...", nargs=-1, required=True, type=NonEmptyPath())


@command.command("dump")
@folder_argument
@click.option("--ledger", "ledger_ids", multiple=True, type=Number(), help="Only this ledger.")
@click.option("--limit", type=Number(), help="Maximum number of entries.")
@click.option(
    "--body", is_flag=True, help="With --json: the payload too, as text where it is UTF-8, else base64."
)
@json_option
def dump(
    folders: tuple[str, ...], ledger_ids: tuple[int, ...], limit: int | None, body: bool, as_json: bool
) -> None:
    """Print the entries that the bookie of FOLDER would serve after a restart. Changes nothing.

    FOLDER holds the folders of its journals and its ledgers; give several if they are separate. With an index
    in RocksDB, as Pulsar has it, the output may contain entries of recently deleted ledgers.
    """
    require_protobuf()
    from pyledger.store.bookkeeper.reader import BookieReader

    reader = BookieReader.open(*folders)
    for stranger in reader.folder.unusual:
        print_status(f"note: {stranger.path}: {stranger.what}")
    printed = 0
    for held in reader.entries():
        if printed == limit:
            break
        if ledger_ids and held.ledger_id not in ledger_ids:
            continue
        printed += 1
        fields, payload = entry_fields(held)
        if as_json:
            emit(fields | (text_or_base64(payload) if body and payload is not None else {}))
        else:
            write_line(_entry_line(fields, payload))


@command.command("verify")
@folder_argument
@json_option
@click.pass_context
def verify(ctx: click.Context, folders: tuple[str, ...], as_json: bool) -> None:
    """Check journals, entry logs and indexes of FOLDER against each other, and the digests of all entries.

    Exit 0 if FOLDER is valid, 1 if there are errors. Notes are not errors.
    """
    require_protobuf()
    from pyledger.store.bookkeeper.verify import BookieCheck

    check, counts = BookieCheck(*folders), {"error": 0, "note": 0}
    for found in check.findings():
        counts[found.severity] += 1
        print_finding(found, as_json=as_json)
    valid = not counts["error"]
    if as_json:
        facts = {"valid": valid, "errors": counts["error"], "notes": counts["note"]}
        emit({"kind": "summary", **facts, "entries": check.entries, "unguarded": check.unguarded})
    else:
        state = "valid" if valid else f"not valid: {counted(counts['error'], 'error')}"
        copies = counted(check.entries, "copy of an entry", "copies of entries")
        unknown = f", {check.unguarded:,} whose digest needs a password" if check.unguarded else ""
        print_status(f"{state}; {copies}{unknown}")
    if not valid:
        ctx.exit(EXIT_PROBLEM)


def entry_fields(held: Any) -> tuple[dict[str, Any], bytes | None]:
    """Return the JSON fields of an entry, and its payload if its digest is known."""
    from pyledger.wire.bookkeeper.entry import HEADER, digest_found

    digest = digest_found(held.entry)
    payload = None if digest is None else bytes(held.entry[HEADER.size + digest.size_bytes :])
    _, _, confirmed, length = HEADER.unpack_from(held.entry)
    return {
        "ledgerId": held.ledger_id,
        "entryId": held.entry_id,
        "lac": confirmed,
        "length": length,
        "size": len(held.entry),
        "digest": None if digest is None else digest.type.name,
        "payloadSize": None if payload is None else len(payload),
        "crc32": f"{zlib.crc32(held.entry):08x}",
        "file": held.path,
        "position": held.position,
    }, payload


def _entry_line(fields: dict[str, Any], payload: bytes | None) -> str:
    text = "" if payload is None else printable(payload.decode("utf-8", "replace"))
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    where = f"{fields['ledgerId']}:{fields['entryId']}"
    return f"{where} lac {fields['lac']} {fields['size']} bytes {fields['digest'] or '?'} {shown}".rstrip()
