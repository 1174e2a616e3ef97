"""Rows of JSON lines and CSV as messages: line number, fields, body; and the queue that a key belongs to."""

import csv
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

import click

Row = tuple[int, dict[str, Any], bytes, int]
"""Line number, fields, the body that will be stored, and the bytes of input read so far."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_json_lines(source: BinaryIO) -> Iterator[Row]:
    """Each line that is not blank; it must be a JSON object."""
    decode = json.JSONDecoder().decode
    done = 0
    for number, line in enumerate(source, 1):
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
        except (ValueError, RecursionError) as error:
            raise click.ClickException(f"line {number}: not JSON: {error}") from error
        if type(fields) is not dict:
            raise click.ClickException(f"line {number}: {_named(fields)}, not a JSON object")
        yield number, fields, body, done


def _named(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def read_csv(source: BinaryIO) -> Iterator[Row]:
    """Each row under the header line, as a JSON object of strings."""
    lines = (
        line.decode("utf-8") for line in chain([source.readline().removeprefix(_BYTE_ORDER_MARK)], source)
    )
    table = csv.reader(lines, strict=True)
    try:
        yield from _csv_rows(table, next(table, []))
    except csv.Error as error:
        raise click.ClickException(f"line {table.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"line {table.line_num + 1}: not UTF-8 at byte {error.start}") from error


def _csv_rows(table: Any, header: list[str]) -> Iterator[Row]:
    if len(set(header)) < len(header):
        raise click.ClickException("line 1: the header names a column twice")
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
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return abs(signed) % queues
