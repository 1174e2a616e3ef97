"""`pyledger repair`: truncate a damaged store; removed bytes are kept aside."""

import click

from pyledger.cli.output import counted, emit, printable, tell, write_line
from pyledger.cli.parameters import json_option, parse_size, store_argument
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger repair store --dry-run
  pyledger repair store
"""

_DEEDS = {
    "cut": ("would cut off", "cut off"),
    "extend": ("would extend", "extended"),
    "rebuild": ("would rebuild", "rebuilt"),
    "reset-checkpoint": ("would reset", "reset"),
    "remove": ("would remove", "removed"),
    "leave": ("would leave", "left"),
}


@click.command("repair", epilog=EXAMPLES)
@store_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option(
    "--cut-at-damage",
    is_flag=True,
    help="Cut the log before damage in its middle, with all that follows; where its end is lost, the queues.",
)
@click.option(
    "--file-size",
    type=parse_size,
    metavar="SIZE",
    help="Size of a whole commit-log file, such as 1GiB, where a lone file that was cut does not tell it.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, store: str, dry_run: bool, cut_at_damage: bool, file_size: int | None, as_json: bool
) -> None:
    """Make a damaged STORE one that Java and PyLedger open. Cut bytes go to a side folder first.

    Damage in the middle of the log is left where it is, for what follows it is sound, and so are queues that
    name what is lost at its end; --cut-at-damage cuts them there. What Spark jobs that are gone have staged
    is removed. Exit 1 when damage is left.
    """
    from pyledger.store.files.folder import read_folder
    from pyledger.store.maintenance.repair import repair

    read_folder(store)  # a lock file must not be left in what is no store
    report = repair(store, dry_run, file_size_bytes=file_size, cut_at_damage=cut_at_damage)
    for step in report.steps:
        if as_json:
            emit(
                {
                    "kind": "step",
                    "action": step.action,
                    "file": step.file,
                    "offset": step.offset,
                    "sizeBytes": step.size_bytes,
                    "detail": step.detail,
                    "done": not dry_run,
                }
            )
        else:
            place = step.file if step.offset is None else f"{step.file} @{step.offset}"
            deed = _DEEDS.get(step.action, (f"would {step.action}", step.action))[not dry_run]
            size = f" ({step.size_bytes:,} bytes)" if step.size_bytes else ""
            write_line(printable(f"{deed} {place}{size}: {step.detail}"))
    if as_json:
        emit(
            {
                "kind": "summary",
                "steps": len(report.steps),
                "complete": report.complete,
                "sideFolder": report.side_folder,
                "done": not dry_run,
            }
        )
    elif not report.steps:
        tell("nothing to repair")
    else:
        kept = f"; cut bytes are kept in {report.side_folder}" if report.side_folder else ""
        verb = "would be taken; nothing was changed" if dry_run else "taken"
        tell(f"{counted(len(report.steps), 'step')} {verb}{kept}")
    if not report.complete:
        ctx.exit(EXIT_PROBLEM)
