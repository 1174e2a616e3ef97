"""The election of the one auditor of a cluster: whoever has the oldest vote that is still there.

A vote ends with the session of whoever gave it. Two may take themselves for elected for a moment, when a
session was lost and its owner does not know yet: what an auditor does may be done twice.

Source: BookKeeper meta/ZkLedgerAuditorManager.java.
"""

import contextlib
from collections.abc import AsyncGenerator

from pyledger.errors import NodeExistsError, NoNodeError
from pyledger.metadata.store import MetadataStore
from pyledger.metadata.underreplication import FOLDER
from pyledger.wire.bookkeeper.underreplication import decode_vote, encode_vote

ELECTION, PREFIX = "auditorelection", "V_"


class AuditorElection:
    """The votes of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Of a store that is started.

        Args:
            store: Where they are.
            root: Path of the cluster.
        """
        self._store, self._folder = store, f"{root}/{FOLDER}/{ELECTION}"

    async def stand(self, candidate: str) -> AsyncGenerator[bool, None]:
        """Be a candidate until this generator is closed; tells whether elected, then each change of it.

        Args:
            candidate: Its name; a vote of this name from before is taken back.
        """
        told: bool | None = None
        own = await self._vote(candidate)
        states = self._store.watch_children(self._folder)
        try:
            async with contextlib.aclosing(states):
                async for names in states:
                    votes = in_order(names or ())
                    if own not in votes:
                        # The session was lost, and the vote with it.
                        if told:
                            told = False
                            yield told
                        own = await self._vote(candidate)
                        continue
                    elected = votes[0] == own
                    if elected and not told:
                        await self._store.set(self._folder, encode_vote(candidate))
                    if elected != told:
                        told = elected
                        yield told
        finally:
            with contextlib.suppress(NoNodeError):
                await self._store.delete(f"{self._folder}/{own}")

    async def auditor(self) -> str | None:
        """Who is elected now; None: nobody stands."""
        while True:
            try:
                votes = in_order(await self._store.children(self._folder))
            except NoNodeError:
                return None
            if not votes:
                return None
            if (node := await self._store.get(f"{self._folder}/{votes[0]}")) is not None:
                return decode_vote(node.data)

    async def _vote(self, candidate: str) -> str:
        data = encode_vote(candidate)
        await self._store.ensure(self._folder)
        for name in in_order(await self._store.children(self._folder)):
            node = await self._store.get(f"{self._folder}/{name}")
            if node is not None and node.data == data:
                # Of a session that is ending, or of a try whose answer was lost.
                with contextlib.suppress(NoNodeError):
                    await self._store.delete(f"{self._folder}/{name}")
        while True:
            try:
                path = await self._store.create(
                    f"{self._folder}/{PREFIX}", data, ephemeral=True, sequence=True
                )
            except (NodeExistsError, NoNodeError):
                await self._store.ensure(self._folder)
            else:
                return path.rpartition("/")[2]


def in_order(names: tuple[str, ...]) -> list[str]:
    """Votes, the oldest first."""
    votes = [name for name in names if name.removeprefix(PREFIX).isdigit()]
    return sorted(votes, key=lambda name: int(name.removeprefix(PREFIX)))
