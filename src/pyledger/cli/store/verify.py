"""`pyledger verify`: check a whole store."""

import click

from pyledger.cli.output import counted, emit, print_finding, print_status, progress
from pyledger.cli.parameters import json_option, store_argument
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Example:
  pyledger verify store
"""


@click.command("verify", epilog=EXAMPLES)
@store_argument
@json_option
@click.pass_context
def command(ctx: click.Context, store: str, as_json: bool) -> None:
    """Check every record, CRC, queue unit, index chain and the checkpoint of STORE against each other.

    Exit 0 when the store is valid, 1 when there are errors. Notes are not errors: recovery repairs what
    they describe, or it is only unusual.
    """
    from pyledger.store.files.folder import read_folder
    from pyledger.store.maintenance.verify import verify

    folder = read_folder(store, entries=True)
    start = folder.log_files[0].start_offset if folder.log_files else 0
    total = sum(file.size_bytes for file in folder.log_files)
    counts = {"error": 0, "note": 0}
    with progress("checking", total, start=start, show=not as_json) as advance:
        for found in verify(store, progress=advance):
            counts[found.severity] += 1
            print_finding(found, as_json=as_json)
    valid = not counts["error"]
    if as_json:
        summary = {"valid": valid, "errors": counts["error"], "notes": counts["note"]}
        emit({"kind": "summary", **summary, "clean": folder.clean})
    else:
        print_status(_summary(counts["error"], counts["note"], clean=folder.clean))
    if not valid:
        ctx.exit(EXIT_PROBLEM)


def _summary(errors: int, notes: int, *, clean: bool) -> str:
    parts = [f"not valid: {counted(errors, 'error')}" if errors else "valid"]
    if notes:
        parts.append(counted(notes, "note"))
    if not clean:
        parts.append(
            "the last writer did not shut down (or is running): the next opening for writing recovers it"
        )
    if errors:
        parts.append("`pyledger repair --dry-run` lists what can be repaired")
    return "; ".join(parts)
