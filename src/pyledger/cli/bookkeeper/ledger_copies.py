"""`pyledger ledger check`, `under-replicated`, `whoami`: missing replicas, and the auditor."""

from typing import Any

import click

from pyledger.cli.bookkeeper.options import client_of, metadata_option
from pyledger.cli.network import run_client
from pyledger.cli.output import counted, emit, format_time, print_rows, print_status, write_line
from pyledger.cli.parameters import Number, json_option
from pyledger.errors import EXIT_PROBLEM


@click.command("check")
@metadata_option
@click.option("--every-entry", is_flag=True, help="Read all entries, not only the ends of each fragment.")
@click.option("--mark", is_flag=True, help="Mark under-replicated ledgers for autorecovery.")
@click.argument("ledger_ids", metavar="[LEDGER]...", nargs=-1, type=Number())
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    metadata: str,
    every_entry: bool,
    mark: bool,
    ledger_ids: tuple[int, ...],
    as_json: bool,
) -> None:
    """Read from bookies the replicas that they should have, of LEDGERs or of all ledgers.

    Exit 1 if some are missing or damaged.
    """

    async def work() -> tuple[int, int]:
        from pyledger.errors import NoSuchLedgerError

        checked = under_replicated = 0
        async with client_of(metadata) as client:
            repairs = client.repairs()
            ids = list(ledger_ids) or [one async for one in client.ledgers()]
            for ledger_id in ids:
                try:
                    found = await repairs.examine(ledger_id, every_entry=every_entry)
                except NoSuchLedgerError:
                    if ledger_ids:
                        raise
                    continue  # deleted in the meantime
                checked += 1
                under_replicated += bool(found.missing_replicas)
                for one in found.missing_replicas:
                    _print_missing(ledger_id, one, as_json)
                if mark and found.missing_replicas:
                    await _mark(client, ledger_id, found.missing_replicas, every_entry)
        return checked, under_replicated

    checked, under_replicated = run_client(work())
    if as_json:
        emit({"kind": "summary", "ledgers": checked, "underReplicated": under_replicated})
    else:
        state = f"{under_replicated} under-replicated" if under_replicated else "no replicas are missing"
        print_status(f"{counted(checked, 'ledger')} checked; {state}")
    if under_replicated:
        ctx.exit(EXIT_PROBLEM)


async def _mark(client: Any, ledger_id: int, missing: Any, every_entry: bool) -> None:
    import time

    from pyledger.client.bookkeeper.ledger_replication import bookies_without_replicas
    from pyledger.wire.bookkeeper.underreplication import EVERY_ENTRY

    replicas = (*bookies_without_replicas(missing), *((EVERY_ENTRY,) if every_entry else ()))
    await client.cluster.marks.prepare()
    await client.cluster.marks.mark(ledger_id, replicas, time.time_ns() // 1_000_000)


def _print_missing(ledger_id: int, found: Any, as_json: bool) -> None:
    fragment = found.fragment
    missing = {fragment.ensemble[index]: result.name for index, result in found.indexes.items()}
    if as_json:
        entries = {"firstEntryId": fragment.first_entry_id, "lastEntryId": fragment.last_entry_id}
        emit({"kind": "fragment", "ledgerId": ledger_id, **entries, "missing": missing})
        return
    bookies = ", ".join(f"{bookie} ({result})" for bookie, result in missing.items())
    write_line(
        f"{ledger_id} entries {fragment.first_entry_id} to {fragment.last_entry_id} missing on {bookies}"
    )


@click.command("under-replicated")
@metadata_option
@json_option
def under_replicated(metadata: str, as_json: bool) -> None:
    """List the ledgers that are marked as under-replicated, and since when."""

    async def work() -> list[dict[str, Any]]:
        async with client_of(metadata) as client:
            marks = client.cluster.marks
            return [
                {"ledgerId": ledger_id, "missing": list(mark.bookies), "ctime": mark.ctime}
                async for ledger_id in marks.ids()
                if (mark := await marks.get(ledger_id)) is not None
            ]

    rows = run_client(work())
    if not as_json:
        rows = [
            row | {"missing": " ".join(row["missing"]), "ctime": format_time(row["ctime"])} for row in rows
        ]
    print_rows(rows, as_json)
    print_status(f"{counted(len(rows), 'ledger')} under-replicated")


@click.command("whoami")
@metadata_option
@json_option
def whoami(metadata: str, as_json: bool) -> None:
    """Show the auditor of the cluster, and whether autorecovery is enabled."""

    async def work() -> tuple[str | None, bool]:
        async with client_of(metadata) as client:
            cluster = client.cluster
            return await cluster.election.auditor(), await cluster.marks.enabled()

    auditor, enabled = run_client(work())
    if as_json:
        emit({"auditor": auditor, "enabled": enabled})
    else:
        write_line(f"{auditor or 'no auditor'}{'' if enabled else ', disabled'}")


COMMANDS = (check, under_replicated, whoami)
