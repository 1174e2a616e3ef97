"""The measurement of `pyledger ledger bench`."""

import asyncio
import time
from itertools import repeat
from typing import Any


async def measure(client: Any, writer: Any, payload: bytes, in_flight: int, seconds: float) -> dict[str, Any]:
    """Add for some time, close the ledger, and read all of it.

    Args:
        client: A started client.
        writer: Writer of an empty ledger; closed at the end.
        payload: The payload of every entry.
        in_flight: Adds in flight.
        seconds: How long to add.
    """
    waits: list[float] = []

    async def adder(end: float) -> None:
        while (begin := time.perf_counter()) < end:
            await writer.submit_add(payload)
            waits.append(time.perf_counter() - begin)

    await writer.add(payload)
    begin = time.perf_counter()
    await asyncio.gather(*map(adder, repeat(begin + seconds, in_flight)))
    taken = time.perf_counter() - begin
    await writer.close()
    reader = await client.open(writer.ledger_id)
    begin, entries = time.perf_counter(), 0
    async for _ in reader.read():
        entries += 1
    reading = time.perf_counter() - begin
    waits.sort()
    return {
        "entries": len(waits),
        "seconds": round(taken, 3),
        "addsPerSecond": round(len(waits) / taken),
        "p50Ms": round(waits[len(waits) // 2] * 1000, 3),
        "p99Ms": round(waits[len(waits) * 99 // 100] * 1000, 3),
        "maxMs": round(waits[-1] * 1000, 3),
        "readsPerSecond": round(entries / reading),
    }
