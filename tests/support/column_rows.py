"""Rows in the form in which `append_rows` takes them."""

from array import array
from itertools import accumulate


def columns(values: list[bytes]) -> "tuple[array[int], bytes]":
    """Offsets and bytes."""
    return array("i", accumulate(map(len, values), initial=0)), b"".join(values)


def plain_rows(
    bodies: list[bytes], queue_id: int = 0
) -> "tuple[array[int], tuple[array[int], bytes], tuple[array[int], bytes], array[int]]":
    """Rows without properties, of one queue: its id, bodies, properties, born timestamps."""
    count = len(bodies)
    return array("i", [queue_id] * count), columns(bodies), columns([b""] * count), array("q", [0] * count)
