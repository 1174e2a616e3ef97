"""Ending the session of somebody else, as a server does on its own."""

import asyncio

from kazoo.client import KazooClient

from pyledger.metadata.sqlite import SqliteStore
from pyledger.metadata.store import MetadataStore
from pyledger.metadata.zookeeper import ZooKeeperStore


async def end_session(store: MetadataStore) -> None:
    """End a session, and wait until another one follows; somebody else has to be there, who looks."""
    names = store.sessions()
    before = await anext(names)
    if isinstance(store, SqliteStore):
        # Whoever finds no lock takes its process for dead.
        (store.path.with_name(f"{store.path.name}.sessions") / before).unlink()
    else:
        assert isinstance(store, ZooKeeperStore)
        await asyncio.to_thread(take_over_and_close, store)
    while await anext(names) == before:
        pass
    await names.aclose()


def take_over_and_close(store: ZooKeeperStore) -> None:
    """From another connection, with the session's id and password."""
    thief = KazooClient(hosts=store.hosts, client_id=store._client.client_id)
    thief.start()
    thief.stop()
    thief.close()
