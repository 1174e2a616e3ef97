"""An annotated dump of a single store file, one dict per item.

Path and name determine the kind of file. Every dict has `kind` and usually `position` (bytes from the start
of the file). Nothing is changed, and no length in the file is trusted.
"""

import json
import os
import struct
from collections.abc import Iterator
from typing import Any

from pyledger._core import LogView, MappedFile, StoredMessage, find_next_record, read_message, scan
from pyledger.errors import StoreFormatError, StoreIOError, StoreNotFoundError
from pyledger.store.files import checkpoint
from pyledger.store.files.folder import (
    ABORT_FILE,
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    INDEX_FOLDER,
    LOCK_FILE,
    LOG_FOLDER,
    QUEUE_EXT_FOLDER,
    QUEUE_FOLDER,
)

Line = dict[str, Any]

_UNIT = struct.Struct(">qiq")
_BATCH_UNIT = struct.Struct(">qiqqqhii")
_EXT_UNIT = struct.Struct(">hqqh")
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")
_TIMER_SLOT = struct.Struct(">qqqii")
_TIMER_LOG_UNIT = struct.Struct(">iqiqiqiiq")
_FILL_SIZE = 0x7FFFFFFF
_SMALL_FILE_BYTES = 16 << 20
_ZEROES_SHOWN_BYTES = 8


def dump_file(path: str) -> Iterator[Line]:
    """Dump one file of a store.

    Args:
        path: A commit log, queue, index, checkpoint, abort, lock, JSON or timer file.

    Raises:
        StoreNotFoundError: no such file.
        StoreFormatError: path and name are not those of a store file.
        StoreIOError: it cannot be read.
    """
    if not os.path.isfile(path):
        problem = "this is a folder" if os.path.isdir(path) else "no such file"
        raise StoreNotFoundError(path, problem, "name one file of a store")
    kind = file_kind(path)
    yield {"kind": "file", "path": path, "type": kind, "sizeBytes": os.path.getsize(path)}
    yield from _DUMPS[kind](path)


def file_kind(path: str) -> str:
    """Return the kind of store file that a path names.

    Raises:
        StoreFormatError: no known kind.
    """
    whole = os.path.abspath(path)
    name = os.path.basename(whole)
    parents = [os.path.basename(whole := os.path.dirname(whole)) for _ in range(3)]
    for kind in (QUEUE_FOLDER, BATCH_QUEUE_FOLDER, QUEUE_EXT_FOLDER):
        if parents[2] == kind:
            return kind
    if parents[0] in (LOG_FOLDER, INDEX_FOLDER, "timerlog"):
        return parents[0]
    if name in (CHECKPOINT_FILE, ABORT_FILE, LOCK_FILE, "timerwheel"):
        return name
    if name == "abort.bak":
        return ABORT_FILE
    if parents[0] == "config" or name.removesuffix(".bak").endswith(".json") or name == "position-checkpoint":
        return "timercheck" if name == "timercheck" else "json"
    raise StoreFormatError(
        path, "is not a store file by its path and name", "dump a file inside a store folder"
    )


def _read(path: str, limit_bytes: int = _SMALL_FILE_BYTES) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit_bytes)
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error


def _dump_log(path: str) -> Iterator[Line]:
    file = MappedFile.open(path)
    start = file.start_offset
    view = LogView([file], start + file.mapped_bytes)
    offset = start
    while offset < view.end_offset:
        stop = scan(view, offset, offset + 1)
        position = offset - start
        if stop.record_count:
            yield {"kind": "record", "position": position, **_record_line(read_message(view, offset))}
            offset = stop.next_offset
        elif stop.blank_count:
            size = struct.unpack(">i", view.read(offset, 4))[0]
            yield {"kind": "blank", "position": position, "sizeBytes": size}
            return
        else:
            following = find_next_record(view, offset + 1)
            end = view.end_offset if following is None else following
            kind = "zeroes" if stop.status == "zeroes" and following is None else "damage"
            line = {"kind": kind, "position": position, "sizeBytes": end - offset}
            yield line if kind == "zeroes" else {**line, "problem": stop.problem or "zeroes"}
            offset = end


def _record_line(message: StoredMessage) -> Line:
    return {
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "layout": message.layout,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "storeHost": message.store_host,
        "bornHost": message.born_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyLength": message.body_length,
        "bodyCRC": message.body_crc,
        "properties": message.properties,
    }


def _units(path: str, unit: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Units of a file with their positions, up to the zeroes after the last one."""
    with open(path, "rb") as file:
        position = 0
        while chunk := file.read(unit.size * 4096):
            for at in range(0, len(chunk) - unit.size + 1, unit.size):
                fields = unit.unpack_from(chunk, at)
                if not any(fields):
                    return
                yield position + at, fields
            position += len(chunk)


def _dump_queue(path: str) -> Iterator[Line]:
    start = int(os.path.basename(path)) // _UNIT.size
    end = 0
    for position, (physical_offset, size_bytes, tags_code) in _units(path, _UNIT):
        line = {"kind": "unit", "position": position, "queueOffset": start + position // _UNIT.size}
        if size_bytes == _FILL_SIZE:
            yield {**line, "kind": "fill"}
        else:
            yield {**line, "physicalOffset": physical_offset, "storeSize": size_bytes, "tagsCode": tags_code}
        end = position + _UNIT.size
    yield {"kind": "zeroes", "position": end, "sizeBytes": os.path.getsize(path) - end}


def _dump_batch_queue(path: str) -> Iterator[Line]:
    names = (
        "physicalOffset",
        "storeSize",
        "tagsCode",
        "storeTimestamp",
        "queueOffset",
        "batchSize",
        "compactedOffset",
    )
    end = 0
    for position, fields in _units(path, _BATCH_UNIT):
        yield {"kind": "batchUnit", "position": position, **dict(zip(names, fields[:7], strict=True))}
        end = position + _BATCH_UNIT.size
    yield {"kind": "zeroes", "position": end, "sizeBytes": os.path.getsize(path) - end}


def _dump_queue_ext(path: str) -> Iterator[Line]:
    start = int(os.path.basename(path))
    with open(path, "rb") as file:
        position = 0
        while len(head := file.read(_EXT_UNIT.size)) == _EXT_UNIT.size:
            size, tags_code, stored_ms, bit_map_bytes = _EXT_UNIT.unpack(head)
            if size < _EXT_UNIT.size:
                yield {"kind": "end", "position": position, "marked": size == -1}
                return
            yield {
                "kind": "extUnit",
                "position": position,
                "address": start + position - (1 << 63),
                "tagsCode": tags_code,
                "storeTimestamp": stored_ms,
                "bitMapBytes": bit_map_bytes,
            }
            position += size
            file.seek(position)


def _dump_index(path: str) -> Iterator[Line]:
    size_bytes = os.path.getsize(path)
    slots = max(0, (size_bytes - _INDEX_HEADER.size) // 84)
    with open(path, "rb") as file:
        head = file.read(_INDEX_HEADER.size)
        if len(head) < _INDEX_HEADER.size:
            yield {"kind": "damage", "position": 0, "problem": "too short for the header of an index file"}
            return
        begin_ms, end_ms, begin_offset, end_offset, used_slots, count = _INDEX_HEADER.unpack(head)
        yield {
            "kind": "indexHeader",
            "beginTimestamp": begin_ms,
            "endTimestamp": end_ms,
            "beginPhysicalOffset": begin_offset,
            "endPhysicalOffset": end_offset,
            "usedSlots": used_slots,
            "indexCount": count,
            "slots": slots,
        }
        first = _INDEX_HEADER.size + 4 * slots
        file.seek(first + _INDEX_ENTRY.size)
        for number in range(1, min(count, (size_bytes - first) // _INDEX_ENTRY.size)):
            key_hash, physical_offset, seconds, previous = _INDEX_ENTRY.unpack(file.read(_INDEX_ENTRY.size))
            yield {
                "kind": "indexEntry",
                "number": number,
                "position": first + number * _INDEX_ENTRY.size,
                "slot": key_hash % slots if slots else None,
                "keyHash": key_hash,
                "physicalOffset": physical_offset,
                "seconds": seconds,
                "previous": previous,
            }


def _dump_checkpoint(path: str) -> Iterator[Line]:
    data = _read(path)
    found = checkpoint.decode(data)
    if found is None:
        yield {"kind": "damage", "position": 0, "problem": "too short, or a time before 1970"}
        return
    yield {
        "kind": "checkpoint",
        "physicMsgTimestamp": found.physic_msg_timestamp,
        "logicsMsgTimestamp": found.logics_msg_timestamp,
        "indexMsgTimestamp": found.index_msg_timestamp,
        "masterFlushedOffset": found.master_flushed_offset,
        "confirmPhyOffset": found.confirm_phy_offset,
    }
    if any(data[40:]):
        yield {"kind": "damage", "position": 40, "problem": "bytes after the fields that are not zero"}


def _dump_text(path: str) -> Iterator[Line]:
    yield {"kind": "text", "text": _read(path, 4096).decode("utf-8", "replace")}


def _dump_json(path: str) -> Iterator[Line]:
    text = _read(path).decode("utf-8", "replace")
    try:
        yield {"kind": "json", "value": json.loads(text)}
    except ValueError:
        # Not JSON: upstream writes integer keys without quotes.
        yield {"kind": "text", "text": text}


def _dump_timer_wheel(path: str) -> Iterator[Line]:
    for position, (time_ms, first, last, count, magic) in _used_slots(path):
        yield {
            "kind": "timerSlot",
            "position": position,
            "time": time_ms,
            "firstPosition": first,
            "lastPosition": last,
            "count": count,
            "magic": magic,
        }


def _used_slots(path: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    empty = bytes(_TIMER_SLOT.size * 4096)
    with open(path, "rb") as file:
        position = 0
        while chunk := file.read(len(empty)):
            if chunk != empty:
                for at in range(0, len(chunk) - _TIMER_SLOT.size + 1, _TIMER_SLOT.size):
                    fields = _TIMER_SLOT.unpack_from(chunk, at)
                    if any(fields):
                        yield position + at, fields
            position += len(chunk)


def _dump_timer_log(path: str) -> Iterator[Line]:
    names = (
        "sizeBytes",
        "previousPosition",
        "magic",
        "enqueueTime",
        "delayMs",
        "physicalOffset",
        "storeSize",
        "topicHash",
    )
    for position, fields in _units(path, _TIMER_LOG_UNIT):
        yield {"kind": "timerUnit", "position": position, **dict(zip(names, fields, strict=False))}


def _dump_timer_check(path: str) -> Iterator[Line]:
    data = _read(path, 4096)
    names = ("lastReadTime", "lastTimerLogFlushPosition", "lastTimerQueueOffset", "masterTimerQueueOffset")
    if len(data) >= 32:
        yield {"kind": "timerCheckpoint", **dict(zip(names, struct.unpack_from(">4q", data), strict=True))}


_DUMPS = {
    LOG_FOLDER: _dump_log,
    QUEUE_FOLDER: _dump_queue,
    BATCH_QUEUE_FOLDER: _dump_batch_queue,
    QUEUE_EXT_FOLDER: _dump_queue_ext,
    INDEX_FOLDER: _dump_index,
    CHECKPOINT_FILE: _dump_checkpoint,
    ABORT_FILE: _dump_text,
    LOCK_FILE: _dump_text,
    "json": _dump_json,
    "timerwheel": _dump_timer_wheel,
    "timerlog": _dump_timer_log,
    "timercheck": _dump_timer_check,
}
