"""`pyledger unarchive`: packed files of the log as they were."""

import contextlib

import click

from pyledger.cli.output import counted, emit_done, printable, tell, write_done
from pyledger.cli.parameters import json_option, store_argument

EXAMPLES = """\b
Example:
  pyledger unarchive store
"""


@click.command("unarchive", epilog=EXAMPLES)
@store_argument
@click.option("--dry-run", is_flag=True, help="Say what would be unpacked; change nothing.")
@json_option
def command(store: str, dry_run: bool, as_json: bool) -> None:
    """Give back the commit-log files of STORE that `pyledger archive` packed, byte for byte."""
    from pyledger.store.cold.archive import unarchive

    files = original = 0
    done = unarchive(store, dry_run=dry_run)
    with contextlib.closing(done):
        for file in done:
            files, original = files + 1, original + file.original_bytes
            if as_json:
                emit_done(
                    {
                        "kind": "file",
                        "file": file.path,
                        "offset": file.start_offset,
                        "sizeBytes": file.original_bytes,
                        "packedBytes": file.compressed_bytes,
                        "done": not dry_run,
                    }
                )
            else:
                verb = "would unpack" if dry_run else "unpacked"
                write_done(printable(f"{verb} {file.path}: {file.original_bytes:,} bytes"))
    if not as_json:
        verb = "would be unpacked; nothing was changed" if dry_run else "unpacked"
        tell(f"{counted(files, 'file')} {verb}" if files else "no file is packed")
