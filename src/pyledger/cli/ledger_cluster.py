"""What `pyledger cluster` says of a cluster of bookies."""

from typing import Any

from pyledger.cli.ledger_options import require_protobuf


def is_metadata(address: str) -> bool:
    """Whether an address is that of a metadata store, not of a broker."""
    return address.startswith(("sqlite:", "zk:", "zk+"))


async def format_cluster(address: str) -> bool:
    """Make an empty cluster; False when there is one."""
    require_protobuf()
    from pyledger.metadata.cluster import locate

    async with locate(address) as cluster:
        return await cluster.format()


async def bookie_rows(address: str) -> tuple[list[dict[str, Any]], int]:
    """All bookies that are known, and how many ledgers have too few copies."""
    require_protobuf()
    import asyncio

    from pyledger.client.ledger import AsyncLedgerClient

    async with AsyncLedgerClient(address) as client:
        found = await client.bookies()
        names = sorted({*found.writable, *found.read_only, *await client.cluster.bookies.known()})
        # A bookie that hangs is waited for; so all are asked at once.
        rows = list(await asyncio.gather(*(_row(client, found, name) for name in names)))
        return rows, sum([1 async for _ in client.cluster.marks.ids()])


async def _row(client: Any, found: Any, name: str) -> dict[str, Any]:
    state = "writable" if name in found.writable else "readOnly" if name in found.read_only else "lost"
    where = found.address(name)
    disk = await client.disk_of(name) if state != "lost" else None
    return {
        "bookieId": name,
        "state": state,
        "address": None if where is None else f"{where[0]}:{where[1]}",
        "diskBytes": None if disk is None else disk[0],
        "diskFreeBytes": None if disk is None else disk[1],
    }
