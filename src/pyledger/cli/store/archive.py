"""`pyledger archive` and `pyledger unarchive`: compress sealed files of the log, and restore them."""

import contextlib
from typing import Any

import click

from pyledger.cli.output import counted, emit_done, print_status, printable, write_done
from pyledger.cli.parameters import json_option, parse_size, parse_time, store_argument

EXAMPLES = """\b
Examples:
  pyledger archive store --older-than 30d --dry-run
  pyledger archive store --older-than 30d
"""
UNARCHIVE_EXAMPLES = """\b
Example:
  pyledger unarchive store
"""

dry_run_option = click.option("--dry-run", is_flag=True, help="List the files; change nothing.")


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
    help="Limit of a block, 64KiB, 256KiB or 1MiB. Reading one message decompresses one block.",
)
@dry_run_option
@json_option
def command(store: str, older_than: int, block_size: int, dry_run: bool, as_json: bool) -> None:
    """Compress the sealed files of STORE's commit log into LZ4 segments, the oldest first.

    PyLedger reads them as before; `pyledger unarchive` restores the files, byte for byte. Java's broker does
    not start on a store with compressed files. The last file of the log is never compressed.
    """
    from pyledger.store.cold.archive import archive

    if block_size not in (64 << 10, 256 << 10, 1 << 20):
        raise click.BadParameter("give 64KiB, 256KiB or 1MiB", param_hint="--block-size")
    files = original = compressed = 0
    done = archive(store, older_than_ms=older_than, block_bytes=block_size, dry_run=dry_run)
    with contextlib.closing(done):
        for file in done:
            files, original = files + 1, original + file.original_bytes
            compressed += file.compressed_bytes
            if as_json:
                size = None if dry_run else file.compressed_bytes
                _emit_file(file, size, {"lastStoreTimestamp": file.last_store_timestamp}, dry_run=dry_run)
            elif dry_run:
                write_done(printable(f"would compress {file.path}: {file.original_bytes:,} bytes"))
            else:
                sizes = f"{file.original_bytes:,} bytes to {file.compressed_bytes:,}"
                write_done(printable(f"compressed {file.target}: {sizes}"))
    if not as_json:
        ratio = f"; {original / compressed:.2f} to 1" if compressed else ""
        verb = "would be compressed; nothing was changed" if dry_run else f"compressed{ratio}"
        print_status(f"{counted(files, 'file')} {verb}" if files else "no file is old enough")


@click.command("unarchive", epilog=UNARCHIVE_EXAMPLES)
@store_argument
@dry_run_option
@json_option
def unarchive(store: str, dry_run: bool, as_json: bool) -> None:
    """Restore the commit-log files of STORE that `pyledger archive` compressed, byte for byte."""
    from pyledger.store.cold.archive import unarchive

    files = 0
    done = unarchive(store, dry_run=dry_run)
    with contextlib.closing(done):
        for file in done:
            files += 1
            if as_json:
                _emit_file(file, file.compressed_bytes, {}, dry_run=dry_run)
            else:
                verb = "would restore" if dry_run else "restored"
                write_done(printable(f"{verb} {file.target}: {file.original_bytes:,} bytes"))
    if not as_json:
        verb = "would be restored; nothing was changed" if dry_run else "restored"
        print_status(f"{counted(files, 'file')} {verb}" if files else "no file is compressed")


def _emit_file(file: Any, compressed_bytes: int | None, more: dict[str, Any], *, dry_run: bool) -> None:
    emit_done(
        {
            "kind": "file",
            "file": file.path,
            "offset": file.start_offset,
            "sizeBytes": file.original_bytes,
            "compressedBytes": compressed_bytes,
            **more,
            "done": not dry_run,
        }
    )
