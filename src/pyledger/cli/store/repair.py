"""`pyledger repair`: truncate a damaged store; removed bytes are kept aside."""

import click

from pyledger.cli.output import counted, emit, print_status, printable, write_line
from pyledger.cli.parameters import json_option, parse_size, store_argument
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger repair store --dry-run
  pyledger repair store
"""

_ACTIONS = {
    "truncate": ("would truncate", "truncated"),
    "extend": ("would extend", "extended"),
    "rebuild": ("would rebuild", "rebuilt"),
    "reset-checkpoint": ("would reset", "reset"),
    "remove": ("would remove", "removed"),
    "leave": ("would leave", "left"),
}


@click.command("repair", epilog=EXAMPLES)
@store_argument
@click.option("--dry-run", is_flag=True, help="Print the steps; change nothing.")
@click.option(
    "--truncate-at-damage",
    is_flag=True,
    help="Truncate the log before damage in its middle; if its end is lost, rebuild the queues without it.",
)
@click.option(
    "--file-size",
    type=parse_size,
    metavar="SIZE",
    help="Size of a full commit-log file, such as 1GiB, if the only file is too short.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    store: str,
    dry_run: bool,
    truncate_at_damage: bool,
    file_size: int | None,
    as_json: bool,
) -> None:
    """Change a damaged STORE so that Java and PyLedger can open it. Removed bytes are saved in a side folder.

    Damage in the middle of the log stays, because the records after it are valid. So do queues that name
    records lost at its end. --truncate-at-damage truncates them there. Staged files of Spark jobs that have
    ended are removed. Exit 1 when damage is left.
    """
    from pyledger.store.files.folder import read_folder
    from pyledger.store.maintenance.repair import repair

    read_folder(store)  # raises before a lock file is created in a folder that is not a store
    report = repair(store, dry_run, file_size_bytes=file_size, truncate_at_damage=truncate_at_damage)
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
            where = step.file if step.offset is None else f"{step.file} @{step.offset}"
            action = _ACTIONS[step.action][not dry_run]
            size = f" ({step.size_bytes:,} bytes)" if step.size_bytes else ""
            write_line(printable(f"{action} {where}{size}: {step.detail}"))
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
        print_status("nothing to repair")
    else:
        kept = f"; removed bytes are saved in {report.side_folder}" if report.side_folder else ""
        verb = "would be taken; nothing was changed" if dry_run else "taken"
        print_status(f"{counted(len(report.steps), 'step')} {verb}{kept}")
    if not report.complete:
        ctx.exit(EXIT_PROBLEM)
