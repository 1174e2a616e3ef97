"""`pyledger cluster` for a cluster of bookies."""

from typing import Any

from pyledger.cli.bookkeeper.options import require_protobuf


def is_metadata(address: str) -> bool:
    """Return whether an address is that of a metadata store, not of a broker."""
    return address.startswith(("sqlite:", "zk:", "zk+"))


async def format_cluster(address: str) -> bool:
    """Create an empty cluster; return False if there is one already."""
    require_protobuf()
    from pyledger.metadata.cluster import locate

    async with locate(address) as cluster:
        return await cluster.format()


async def bookie_rows(address: str) -> tuple[list[dict[str, Any]], int]:
    """Return a row for each known bookie, and the number of under-replicated ledgers."""
    require_protobuf()
    import asyncio
    from collections import Counter

    from pyledger.bookkeeper import AsyncLedgerClient

    async with AsyncLedgerClient(address) as client:
        found = await client.bookies()
        names = sorted({*found.writable, *found.read_only, *await client.cluster.bookies.known()})
        marks, under_replicated = client.cluster.marks, Counter[str]()
        marked = [mark async for one in marks.ids() if (mark := await marks.get(one)) is not None]
        for mark in marked:
            under_replicated.update(set(mark.replicas))
        # Concurrently, because a bookie that hangs answers only at its timeout.
        rows = await asyncio.gather(*(_row(client, found, name, under_replicated[name]) for name in names))
        return list(rows), len(marked)


async def _row(client: Any, found: Any, name: str, under_replicated: int) -> dict[str, Any]:
    state = "writable" if name in found.writable else "readOnly" if name in found.read_only else "lost"
    where = found.address(name)
    disk = await client.disk_of(name) if state != "lost" else None
    return {
        "bookieId": name,
        "state": state,
        "address": None if where is None else f"{where[0]}:{where[1]}",
        "diskBytes": None if disk is None else disk[0],
        "diskFreeBytes": None if disk is None else disk[1],
        "underReplicatedLedgers": under_replicated,
    }
