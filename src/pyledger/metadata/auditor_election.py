"""The election of a cluster's auditor: the candidate with the oldest remaining vote.

A vote ends with its candidate's session. Two candidates may briefly both act as elected, when one has
lost its session but does not know yet. An auditor's actions must therefore be idempotent.

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
    """The election of one cluster's auditor."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Create it in a store that is started.

        Args:
            store: The metadata store.
            root: Path of the cluster.
        """
        self._store, self._folder = store, f"{root}/{FOLDER}/{ELECTION}"

    async def campaign(self, candidate: str) -> AsyncGenerator[bool, None]:
        """Be a candidate until this generator is closed; yield whether it is elected, now and after changes.

        Args:
            candidate: Name of the candidate; an earlier vote with this name is withdrawn.
        """
        reported: bool | None = None
        own = await self._vote(candidate)
        states = self._store.watch_children(self._folder)
        try:
            async with contextlib.aclosing(states):
                async for names in states:
                    votes = in_order(names or ())
                    if own not in votes:
                        # The session was lost, and with it the vote.
                        if reported:
                            reported = False
                            yield reported
                        own = await self._vote(candidate)
                        continue
                    elected = votes[0] == own
                    if elected and not reported:
                        await self._store.set(self._folder, encode_vote(candidate))
                    if elected != reported:
                        reported = elected
                        yield reported
        finally:
            with contextlib.suppress(NoNodeError):
                await self._store.delete(f"{self._folder}/{own}")

    async def auditor(self) -> str | None:
        """Return the elected candidate; None if there is no vote."""
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
                # The vote of an expiring session, or of an attempt whose response was lost.
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
    """Return the votes, oldest first."""
    votes = [name for name in names if name.removeprefix(PREFIX).isdigit()]
    return sorted(votes, key=lambda name: int(name.removeprefix(PREFIX)))
