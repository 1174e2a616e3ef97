"""`pyledger rebuild`: rebuild consume queues and index from the log."""

import time

import click

from pyledger.cli.output import counted, emit, print_status, progress
from pyledger.cli.parameters import json_option, store_argument

EXAMPLES = """\b
Example:
  pyledger rebuild store
"""


@click.command("rebuild", epilog=EXAMPLES)
@store_argument
@json_option
def command(store: str, as_json: bool) -> None:
    """Rebuild the consume queues and the index of STORE from the commit log alone.

    The new files replace the old ones when they are complete and on disk.
    """
    from pyledger.store.files.folder import read_folder
    from pyledger.store.maintenance.rebuild import rebuild

    folder = read_folder(store)
    start = folder.log_files[0].start_offset if folder.log_files else 0
    total = sum(file.size_bytes for file in folder.log_files)
    begun = time.perf_counter()
    with progress("rebuilding", total, start=start) as advance:
        report = rebuild(store, progress=advance)
    seconds = time.perf_counter() - begun
    if as_json:
        counts = {"records": report.records, "queues": report.queues, "indexFiles": report.index_files}
        emit({"kind": "rebuilt", **counts, "seconds": round(seconds, 3)})
    else:
        rebuilt = f"{counted(report.queues, 'queue')}, {counted(report.index_files, 'index file')}"
        print_status(f"{rebuilt} rebuilt from {counted(report.records, 'record')}")
