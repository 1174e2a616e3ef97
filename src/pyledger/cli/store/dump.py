"""`pyledger dump`: show one store file, annotated."""

import json
from typing import Any

import click

from pyledger.cli.output import emit, format_time, printable, write_line
from pyledger.cli.parameters import NonEmptyPath, Number, json_option

EXAMPLES = """\b
Examples:
  pyledger dump store/checkpoint
  pyledger dump store/commitlog/00000000000000000000 --limit 3
"""


@click.command("dump", epilog=EXAMPLES)
@click.argument("file", type=NonEmptyPath())
@click.option("--limit", type=Number(1), help="Stop after this many lines.")
@json_option
def command(file: str, limit: int | None, as_json: bool) -> None:
    """Show any single store FILE: commit log, queue, index, checkpoint, lock, JSON and timer files.

    Positions are bytes from the start of the file. Path and name determine the kind of the file.
    """
    from itertools import islice

    from pyledger.store.maintenance.dump import dump_file

    for line in islice(dump_file(file), limit):
        if as_json:
            emit(line)
        else:
            _write_text(line)


def _write_text(line: dict[str, Any]) -> None:
    position = line.get("position", "")
    fields = (f"{n}={_shown(n, v)}" for n, v in line.items() if n not in ("kind", "position"))
    write_line(printable(f"{position!s:>10}  {line['kind']:<11} {' '.join(fields)}"))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if name.endswith("Timestamp") and isinstance(value, int) and value > 0:
        return f"{value}({format_time(value)})"
    return str(value)
