"""Rows of JSON lines and CSV as messages: line number, fields, body; and the queue that a key belongs to."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import Any, BinaryIO

import click

from pyledger.model.tags import java_hash

Row = tuple[int, dict[str, Any], bytes, int]
"""Line number, fields, the body that will be stored, and the bytes of input read so far."""

LINE_BYTES_MAX = 64 << 20
"""More than a message can hold with settings that brokers have."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_whole(source: BinaryIO) -> bytes:
    """All of a file that fits into a message.

    Raises:
        ClickException: it is longer.
    """
    body = source.read(LINE_BYTES_MAX + 1)
    if len(body) > LINE_BYTES_MAX:
        raise click.ClickException(f"the input is longer than {LINE_BYTES_MAX >> 20} MiB")
    return body


def read_lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends, one at a time: input without line ends must not fill the memory.

    Raises:
        ClickException: a line is longer than a message can be.
    """
    for number in count(1):
        line = source.readline(LINE_BYTES_MAX + 1)
        if len(line) > LINE_BYTES_MAX:
            raise click.ClickException(f"line {number}: longer than {LINE_BYTES_MAX >> 20} MiB")
        if not line:
            return
        yield line


def read_json_lines(source: BinaryIO) -> Iterator[Row]:
    """Each line that is not blank; it must be a JSON object."""
    decode = json.JSONDecoder().decode
    done = 0
    for number, line in enumerate(read_lines(source), 1):
        done += len(line)
        body = line.strip()
        if number == 1:
            body = body.removeprefix(_BYTE_ORDER_MARK)
        if not body:
            continue
        try:
            fields = decode(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise click.ClickException(f"line {number}: not UTF-8 at byte {error.start}") from error
        except json.JSONDecodeError as error:
            raise click.ClickException(f"line {number}: not JSON: {error}") from error
        except RecursionError as error:
            raise click.ClickException(f"line {number}: is nested too deeply") from error
        except ValueError as error:
            digits = sys.get_int_max_str_digits()
            raise click.ClickException(f"line {number}: a number has more than {digits:,} digits") from error
        if type(fields) is not dict:
            raise click.ClickException(f"line {number}: {_named(fields)}, not a JSON object")
        yield number, fields, body, done


def _named(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def read_csv(source: BinaryIO) -> Iterator[Row]:
    """Each row under the header line, as a JSON object of strings."""
    lines = read_lines(source)
    whole = chain([next(lines, b"").removeprefix(_BYTE_ORDER_MARK)], lines)
    table = csv.reader((line.decode("utf-8") for line in whole), strict=True)
    try:
        yield from _csv_rows(table, next(table, []))
    except csv.Error as error:
        raise click.ClickException(f"line {table.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"line {table.line_num + 1}: not UTF-8 at byte {error.start}") from error


def _csv_rows(table: Any, header: list[str]) -> Iterator[Row]:
    if (twice := first_repeated(header)) is not None:
        raise click.ClickException(f"line 1: the header names {twice!r} twice; give each column its own name")
    done = 0
    for cells in table:
        if not cells:
            continue
        if len(cells) != len(header):
            problem = f"{len(cells)} cells, the header has {len(header)}"
            raise click.ClickException(f"line {table.line_num}: {problem}")
        fields = dict(zip(header, cells, strict=True))
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        done += sum(map(len, cells)) + len(cells)
        yield table.line_num, fields, body, done


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that is there twice."""
    return next((name for number, name in enumerate(names) if name in names[:number]), None)


def field_text(fields: dict[str, Any], name: str, number: int) -> str | None:
    """The text of a field, as JSON where it is no string; None when it is null or empty."""
    try:
        value = fields[name]
    except KeyError:
        raise click.ClickException(
            f"line {number}: no field {name!r}; there are {', '.join(fields)}"
        ) from None
    if type(value) is str:
        return value or None
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def queue_of_key(key: str, queues: int) -> int:
    """As RocketMQ's SelectMessageQueueByHash: the absolute Java hash of the key, modulo the queues."""
    return abs(java_hash(key)) % queues
