"""`pyledger archive`: pack sealed files of the log."""

import contextlib

import click

from pyledger.cli.output import counted, emit_done, printable, tell, write_done
from pyledger.cli.parameters import json_option, parse_size, parse_time, store_argument

EXAMPLES = """\b
Examples:
  pyledger archive store --older-than 30d --dry-run
  pyledger archive store --older-than 30d
"""


@click.command("archive", epilog=EXAMPLES)
@store_argument
@click.option(
    "--older-than",
    type=parse_time,
    required=True,
    metavar="TIME",
    help="Files whose last message was stored before: an age such as 30d or 12h, ISO 8601, or ms.",
)
@click.option(
    "--block-size",
    type=parse_size,
    default="256KiB",
    show_default=True,
    help="Most bytes of a block, 64KiB, 256KiB or 1MiB: what is unpacked to read one message.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be packed; change nothing.")
@json_option
def command(store: str, older_than: int, block_size: int, dry_run: bool, as_json: bool) -> None:
    """Pack the sealed files of STORE's commit log into LZ4 segments, the oldest first.

    Everything here reads them as before; `pyledger unarchive` gives the files back, byte for byte. Java's
    broker does not start on a store with packed files. The last file of the log is never packed.
    """
    from pyledger.store.cold.archive import archive

    if block_size not in (64 << 10, 256 << 10, 1 << 20):
        raise click.BadParameter("give 64KiB, 256KiB or 1MiB", param_hint="--block-size")
    files = original = packed = 0
    done = archive(store, older_than_ms=older_than, block_bytes=block_size, dry_run=dry_run)
    with contextlib.closing(done):
        for file in done:
            files, original, packed = (
                files + 1,
                original + file.original_bytes,
                packed + file.compressed_bytes,
            )
            if as_json:
                emit_done(
                    {
                        "kind": "file",
                        "file": file.path,
                        "offset": file.start_offset,
                        "sizeBytes": file.original_bytes,
                        "packedBytes": None if dry_run else file.compressed_bytes,
                        "lastStoreTimestamp": file.last_store_timestamp,
                        "done": not dry_run,
                    }
                )
            elif dry_run:
                write_done(printable(f"would pack {file.path}: {file.original_bytes:,} bytes"))
            else:
                sizes = f"{file.original_bytes:,} bytes in {file.compressed_bytes:,}"
                write_done(printable(f"packed {file.target}: {sizes}"))
    if not as_json:
        share = f"; {original / packed:.2f} to 1" if packed else ""
        verb = "would be packed; nothing was changed" if dry_run and files else f"packed{share}"
        tell(f"{counted(files, 'file')} {verb}" if files else "no file is old enough")
