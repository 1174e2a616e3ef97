"""`pyledger info`: the contents and the state of a store."""

import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click

from pyledger.cli.output import (
    ProblemFoundError,
    counted,
    emit,
    format_size,
    format_time,
    print_table,
    printable,
    write_line,
)
from pyledger.cli.parameters import end_problem, json_option, store_argument
from pyledger.errors import StoreError

EXAMPLES = """\b
Examples:
  pyledger info store
  pyledger info store --json
"""

_QUEUES_SHOWN = 64
Fields = dict[str, Any]


@click.command("info", epilog=EXAMPLES)
@store_argument
@click.option(
    "--all", "show_all", is_flag=True, help=f"List every queue, also when there are over {_QUEUES_SHOWN}."
)
@json_option
def command(store: str, show_all: bool, as_json: bool) -> None:
    """Show the files, offsets, topics, queues and times of STORE, its last shutdown, and unusual contents."""
    from pyledger.clock import SystemClock
    from pyledger.store.files.staged_rows import find_staged
    from pyledger.store.reading.reader import StoreReader

    with StoreReader.open(store, on_corrupt="skip") as reader:
        facts = _store_facts(reader)
        queues = list(_queue_facts(reader))
        facts |= {
            "topics": len({queue["topic"] for queue in queues}),
            "queues": len(queues),
            "messages": sum(queue["messages"] for queue in queues),
        }
        unusual: list[Fields] = [
            {"kind": "unusual", "file": found.path, "detail": found.what} for found in reader.layout.unusual
        ]
        unusual += [
            {
                "kind": "damage",
                "physicalOffset": damage.physical_offset,
                "sizeBytes": damage.size_bytes,
                "detail": damage.problem,
            }
            for damage in (*reader.stop.damages, *([reader.lost_end.damage] if reader.lost_end else []))
        ]
        unusual += [
            {
                "kind": "staged",
                "file": job.path,
                "state": job.state,
                "sizeBytes": job.size_bytes,
                "detail": job.detail,
            }
            for job in find_staged(reader.path, SystemClock().now_ms())
        ]
    if as_json:
        for fields in (facts, *queues, *unusual):
            emit(fields)
    else:
        _print_store(facts, queues, unusual, show_all=show_all)
    if (problem := end_problem(reader)) is not None:
        raise ProblemFoundError(f"{problem}; see `pyledger verify`")


def _print_store(facts: Fields, queues: list[Fields], unusual: list[Fields], *, show_all: bool) -> None:
    _print_facts(facts)
    print_table(*_topic_rows(queues))
    if show_all or len(queues) <= _QUEUES_SHOWN:
        write_line("")
        print_table(*_queue_rows(queues))
    else:
        write_line(f"\n{len(queues):,} queues: --all or --json lists them")
    for fields in unusual:
        where = fields.get("file", f"physical offset {fields.get('physicalOffset')}")
        size = f" ({counted(fields['sizeBytes'], 'byte')})" if fields["kind"] == "staged" else ""
        write_line(printable(f"{fields['kind']}: {where}{size}: {fields['detail']}"))


def _store_facts(reader: Any) -> Fields:
    folder, stop, checkpoint = reader.layout, reader.stop, reader.checkpoint
    empty = reader.min_offset == reader.max_offset
    return {
        "kind": "store",
        "path": reader.path,
        "clean": folder.clean,
        "logFiles": len(folder.log_files),
        "logFileSizeBytes": folder.log_file_size_bytes,
        "logBytesOnDisk": sum(
            os.path.getsize(file.path) if file.is_cold else file.size_bytes for file in folder.log_files
        ),
        "archivedFiles": sum(file.is_cold for file in folder.log_files),
        "indexFiles": len(folder.index_files),
        "minPhysicalOffset": reader.min_offset,
        "maxPhysicalOffset": reader.max_offset,
        "endStatus": stop.status,
        "endProblem": stop.problem or None,
        "firstStoreTimestamp": None if empty else _store_timestamp(reader, reader.min_offset),
        "lastStoreTimestamp": None if empty else stop.last_store_timestamp or None,
        "checkpoint": checkpoint
        and {
            "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
            "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
            "indexMsgTimestamp": checkpoint.index_msg_timestamp,
            "masterFlushedOffset": checkpoint.master_flushed_offset,
            "confirmPhyOffset": checkpoint.confirm_phy_offset,
        },
    }


def _queue_facts(reader: Any) -> Iterator[Fields]:
    for (topic, queue_id), held in reader.queues().items():
        first = reader.units(topic, queue_id, held.min_offset, held.min_offset + 1)
        last = reader.units(topic, queue_id, held.max_offset - 1, held.max_offset)
        yield {
            "kind": "queue",
            "topic": topic,
            "queueId": queue_id,
            "minOffset": held.min_offset,
            "maxOffset": held.max_offset,
            "messages": held.max_offset - held.min_offset,
            "firstStoreTimestamp": _store_timestamp(reader, first[0].physical_offset) if len(first) else None,
            "lastStoreTimestamp": _store_timestamp(reader, last[-1].physical_offset) if len(last) else None,
        }


def _store_timestamp(reader: Any, physical_offset: int) -> int | None:
    """Store time (ms) of the record at a physical offset (bytes); None without a valid one."""
    try:
        timestamp: int = reader.message_at(physical_offset).store_timestamp
    except StoreError:
        return None
    return timestamp


def _print_facts(facts: Fields) -> None:
    low, high = facts["minPhysicalOffset"], facts["maxPhysicalOffset"]
    queues, topics = counted(facts["queues"], "queue"), counted(facts["topics"], "topic")
    first, last = facts["firstStoreTimestamp"], facts["lastStoreTimestamp"]
    lines = {
        "store": facts["path"],
        "files": f"{counted(facts['logFiles'], 'log file')} of {format_size(facts['logFileSizeBytes'])}, "
        f"{counted(facts['indexFiles'], 'index file')}"
        + (f"; {facts['archivedFiles']:,} archived" if facts["archivedFiles"] else ""),
        "log": f"physical offsets {low:,} to {high:,}, {format_size(high - low)}",
        "end": facts["endProblem"],
        "messages": f"{facts['messages']:,} in {queues} of {topics}",
        "stored": f"{format_time(first)} to {format_time(last)}" if last else None,
        "shutdown": _shutdown_line(facts),
        "checkpoint": _checkpoint_line(facts["checkpoint"]),
    }
    for name, value in lines.items():
        if value is not None:
            write_line(printable(f"{name + ':':<12}{value}"))
    write_line("")


def _shutdown_line(facts: Fields) -> str:
    if not facts["clean"]:
        return "not clean, or its writer is running; the next opening for writing recovers it"
    return "clean" if facts["endProblem"] is None else "clean, but its log ends in damage"


def _checkpoint_line(checkpoint: dict[str, int] | None) -> str:
    if checkpoint is None:
        return "none"
    parts = {"log": "physicMsgTimestamp", "queues": "logicsMsgTimestamp", "index": "indexMsgTimestamp"}
    return ", ".join(
        f"{part} {format_time(checkpoint[name] or None) or 'unknown'}" for part, name in parts.items()
    )


Table = tuple[tuple[str, ...], list[tuple[object, ...]]]


def _topic_rows(queues: list[Fields]) -> Table:
    header = ("topic", "queues", "messages", "first stored", "last stored")
    rows: list[tuple[object, ...]] = []
    for topic, group in groupby(queues, key=lambda queue: queue["topic"]):
        members = list(group)
        first = [q["firstStoreTimestamp"] for q in members if q["firstStoreTimestamp"] is not None]
        last = [q["lastStoreTimestamp"] for q in members if q["lastStoreTimestamp"] is not None]
        times = (format_time(min(first, default=None)), format_time(max(last, default=None)))
        rows.append((topic, len(members), sum(q["messages"] for q in members), *times))
    return header, rows


def _queue_rows(queues: list[Fields]) -> Table:
    header = ("topic", "queue", "min offset", "max offset", "messages", "last stored")
    return header, [
        (
            queue["topic"],
            queue["queueId"],
            queue["minOffset"],
            queue["maxOffset"],
            queue["messages"],
            format_time(queue["lastStoreTimestamp"]),
        )
        for queue in queues
    ]
