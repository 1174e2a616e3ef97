"""`pyledger bookie recover`: re-replicates the ledgers of lost bookies."""

from typing import Any

import click

from pyledger.cli.bookkeeper.options import client_of, metadata_option
from pyledger.cli.network import run_client
from pyledger.cli.output import counted, emit, emit_done, print_status, write_done
from pyledger.cli.parameters import json_option
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger bookie recover -m sqlite:meta --dry-run 127.0.0.1:3181
  pyledger bookie recover -m zk://127.0.0.1:2181/ledgers --forget 127.0.0.1:3181
"""


@click.command("recover", epilog=EXAMPLES)
@metadata_option
@click.option("--dry-run", is_flag=True, help="Only report under-replicated ledgers.")
@click.option("--forget", is_flag=True, help="Delete their cookies at the end: they cannot return.")
@click.argument("bookie_ids", metavar="BOOKIE...", nargs=-1, required=True)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    metadata: str,
    dry_run: bool,
    forget: bool,
    bookie_ids: tuple[str, ...],
    as_json: bool,
) -> None:
    """Re-replicate every ledger that has replicas on BOOKIEs, which are lost. Needs no autorecovery.

    A ledger whose writer adds to such a bookie is fenced and closed. Exit 1 if a ledger is still
    under-replicated.
    """
    if dry_run and forget:
        raise click.UsageError("--dry-run changes nothing, so it cannot --forget")

    async def work() -> dict[str, int]:
        from pyledger.servers.autorecovery.recover_bookies import Outcome, replicate_ledgers_of

        counts = {one.value: 0 for one in Outcome}
        async with client_of(metadata) as client:
            known = await client.cluster.bookies.known()
            for bookie_id in bookie_ids:
                if bookie_id not in known:
                    raise click.BadParameter(f"there is no bookie {bookie_id!r}", param_hint="BOOKIE")
            async for one in replicate_ledgers_of(client, bookie_ids, dry_run=dry_run):
                counts[one.outcome.value] += 1
                _print(one, as_json)
            if forget and not counts["failed"]:
                for bookie_id in bookie_ids:
                    await client.cluster.bookies.delete_cookie(bookie_id)
        return counts

    counts = run_client(work())
    forgotten = forget and not counts["failed"]
    if as_json:
        emit({"kind": "summary", **counts, "forgotten": forgotten})
    else:
        print_status(f"{counted(sum(counts.values()), 'ledger')} with replicas there; {_summary(counts)}")
        if forgotten:
            print_status(f"forgotten: {' '.join(bookie_ids)}")
    if counts["failed"] or counts["underReplicated"]:
        ctx.exit(EXIT_PROBLEM)


def _summary(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {_text(name)}" for name, count in counts.items() if count) or "nothing to do"


def _text(outcome: str) -> str:
    return "under-replicated" if outcome == "underReplicated" else outcome


def _print(one: Any, as_json: bool) -> None:
    if as_json:
        fields = {"ledgerId": one.ledger_id, "outcome": one.outcome.value, "fragments": one.fragments}
        done = {"closed": one.closed, "copiedBytes": one.copied_bytes, "problem": one.problem or None}
        emit_done({"kind": "ledger", **fields, **done})
        return
    facts = f"{counted(one.fragments, 'fragment')}, {one.copied_bytes:,} bytes" if one.fragments else ""
    end = " closed" if one.closed else ""
    write_done(f"{one.ledger_id} {_text(one.outcome.value)}{end} {one.problem or facts}".rstrip())
