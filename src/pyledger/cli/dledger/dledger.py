"""`pyledger dledger`: groups of DLedger nodes, ours or Java's, and their folders."""

from typing import Any

import click

from pyledger.cli.dledger import network
from pyledger.cli.dledger.entries import entry_fields, entry_line
from pyledger.cli.messages import text_or_base64
from pyledger.cli.output import (
    ProblemFoundError,
    WrongUseError,
    counted,
    emit,
    print_finding,
    print_status,
    printable,
    progress,
    write_line,
)
from pyledger.cli.parameters import NonEmptyPath, Number, json_option
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger dledger cat dledger-n0 --limit 10
  pyledger dledger verify dledger-n0
"""

GENERATION_HELP = "Which rules apply: a for DLedger up to 0.3, b for 0.4; auto detects it."


@click.group("dledger", epilog=EXAMPLES)
def command() -> None:
    """Replicated logs of DLedger: run members, send requests to a group, read and check folders."""


for _one in network.COMMANDS:
    command.add_command(_one)


folder_argument = click.argument("folder", type=NonEmptyPath())
data_option = click.option(
    "--data",
    "data_paths",
    multiple=True,
    type=NonEmptyPath(),
    help="Where data files are, if not in FOLDER/data.",
)
generation_option = click.option(
    "--generation",
    type=click.Choice(["auto", "a", "b"]),
    default="auto",
    show_default=True,
    help=GENERATION_HELP,
)


@command.command("cat")
@folder_argument
@click.option("--from", "start", type=Number(), help="First index.")
@click.option("--to", "end", type=Number(), help="End index (exclusive).")
@click.option("--limit", type=Number(), help="Limit of entries.")
@click.option(
    "--body", is_flag=True, help="With --json: the body too, as text where it is UTF-8, else base64."
)
@data_option
@generation_option
@json_option
def cat(
    folder: str,
    start: int | None,
    end: int | None,
    limit: int | None,
    body: bool,
    data_paths: tuple[str, ...],
    generation: Any,
    as_json: bool,
) -> None:
    """Print the entries that recovery would find in FOLDER, `dledger-<id>`. Changes no byte of it.

    Exit 1 when entries are missing or damaged; those before them are printed.
    """
    from pyledger.store.dledger.reader import DLedgerReader

    with DLedgerReader.open(folder, data_paths=data_paths, generation=generation) as reader:
        for stranger in reader.folder.unusual:
            print_status(f"note: {stranger.path}: {stranger.what}")
        printed = 0
        shortfall = None
        for entry in reader.entries():
            if printed == limit or (end is not None and entry.index >= end):
                break
            if start is not None and entry.index < start:
                continue
            printed += 1
            if as_json:
                emit(entry_fields(entry) | (text_or_base64(entry.body) if body else {}))
            else:
                write_line(entry_line(entry))
        if reader.stop is not None:
            shortfall = reader.shortfall(reader.stop)
    if shortfall is not None:
        raise ProblemFoundError(shortfall)


@command.command("verify")
@folder_argument
@data_option
@generation_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context, folder: str, data_paths: tuple[str, ...], generation: Any, as_json: bool
) -> None:
    """Check every entry, checksum and index unit of FOLDER, and its term file and checkpoint.

    Exit 0 when it is valid, 1 when there are errors. Notes are not errors: recovery repairs them.
    """
    from pyledger.store.dledger.reader import DLedgerReader
    from pyledger.store.dledger.verify import verify_dledger

    counts = {"error": 0, "note": 0}
    with DLedgerReader.open(folder, data_paths=data_paths, generation=generation) as reader:
        total = sum(file.size_bytes for file in reader.folder.data_files)
        with progress("checking", total, start=reader.start_offset, show=not as_json) as advance:
            for found in verify_dledger(reader, advance):
                counts[found.severity] += 1
                print_finding(found, as_json=as_json)
        stop = reader.scan()
    valid = not counts["error"]
    facts = {
        "valid": valid,
        "errors": counts["error"],
        "notes": counts["note"],
        "begin": stop.first_index,
        "end": stop.last_index,
        "endTerm": stop.last_term,
        "dataEnd": stop.next_offset,
        "sealed": stop.sealed_count,
        "committed": min(reader.committed_index, stop.last_index),
        "term": reader.folder.vote.term,
        "voteFor": reader.folder.vote.vote_for,
        "generation": reader.generation,
    }
    if as_json:
        emit({"kind": "summary", **facts})
    else:
        state = "valid" if valid else f"not valid: {counted(counts['error'], 'error')}"
        held = counted(stop.entry_count, "entry", "entries")
        print_status(f"{state}; {held}, {stop.first_index}..{stop.last_index}, term {stop.last_term}")
    if not valid:
        ctx.exit(EXIT_PROBLEM)


@command.command("repair")
@folder_argument
@click.option("--group", default="default", show_default=True, help="Name of the group, with --peers.")
@click.option(
    "--peers", help="Set a lost term file: requests the terms of all other members, which must run."
)
@click.option("--term", type=Number(1, (1 << 62) - 1), help="Set the lost term file to this term instead.")
@click.option(
    "--truncate",
    is_flag=True,
    help="End the log before missing entries; move what follows to another folder.",
)
@click.option("--accept-loss", is_flag=True, help="Vote again without the entries that were lost.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@data_option
@json_option
def repair(
    folder: str,
    group: str,
    peers: str | None,
    term: int | None,
    truncate: bool,
    accept_loss: bool,
    dry_run: bool,
    data_paths: tuple[str, ...],
    as_json: bool,
) -> None:
    """Apply decisions that a member must not take by itself. FOLDER belongs to a stopped member.

    A new term must be above the terms of all other members, as this one may have voted in each of them.
    --accept-loss may give up acknowledged entries: use it only if no other member has them.
    """
    from pyledger.store.dledger.repair import last_term, repair_node

    if term is None and peers is None and not truncate and not accept_loss:
        raise WrongUseError("nothing to do: give --peers or --term, --truncate or --accept-loss")
    if term is None and peers is not None:
        term = 1 + max(last_term(folder, data_paths), network.highest_term(folder, group, peers))
    steps = repair_node(
        folder, term=term, truncate=truncate, accept_loss=accept_loss, data_paths=data_paths, dry_run=dry_run
    )
    for step in steps:
        if as_json:
            emit({"kind": "step", "action": step.action, "file": step.file, "detail": step.detail})
        else:
            would = "would " if dry_run else ""
            write_line(printable(f"{would}{step.action} {step.file}: {step.detail}"))
    if not steps:
        print_status("nothing to do")
