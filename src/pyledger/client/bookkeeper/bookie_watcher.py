"""The bookies of a cluster as a client sees them: which are registered and which failed; requests to them."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import MetadataUnreachableError, NotEnoughBookiesError
from pyledger.metadata.bookies import RegisteredBookies
from pyledger.metadata.cluster import Cluster
from pyledger.net.bookkeeper.bookie_client import BookieClient, Codec, RequestBatch
from pyledger.protocol.bookkeeper.fragments import MissingReplicas
from pyledger.protocol.bookkeeper.ledger_writer import Replacements
from pyledger.protocol.bookkeeper.messages import AddRequest, Request
from pyledger.protocol.bookkeeper.placement import Placement, RackOf
from pyledger.protocol.bookkeeper.quarantine import Quarantine, replacements
from pyledger.protocol.bookkeeper.re_replication import Repair, repair_of
from pyledger.wire.bookkeeper.request_frames import ADDED, AnswerFrames, RequestFrame, Version2, Version3

RETRY_PAUSE_S = 0.1


class BookieWatcher:
    """Sends requests to bookies, and chooses them. Belongs to one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: BookkeeperConfig,
        *,
        tls: TlsConfig | None,
        random: Random,
        rack_of: RackOf,
    ) -> None:
        """Create a watcher; `start` starts it.

        Args:
            cluster: The metadata in which bookies register.
            config: Timeouts and limits.
            tls: Certificates; None: no TLS.
            random: Spreads ledgers over bookies.
            rack_of: Network location of a bookie.
        """
        self._cluster, self._config = cluster, config
        self._placement = Placement(random.shuffle, rack_of, config.min_num_racks_per_write_quorum)
        self._registered = RegisteredBookies({}, {})
        self._quarantine = Quarantine(config.bookie_failure_history_ms)
        self._version3, self._version2 = Version3(), Version2()
        self._clients = [
            BookieClient(
                codec,
                frame_max_bytes=config.answer_max_bytes,
                connect_timeout_ms=config.connect_timeout_ms,
                tls=tls,
            )
            for codec in (Codec(self._version3.decode, AnswerFrames, ADDED), Codec(self._version2.decode))
        ]
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the registered bookies and follow their changes."""
        await self.look()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Close all connections."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for client in self._clients:
            await client.close()

    async def look(self) -> RegisteredBookies:
        """Read the registered bookies."""
        self._registered = await self._cluster.bookies.registered()
        return self._registered

    # --- choice of bookies

    @property
    def registered(self) -> RegisteredBookies:
        """Return the registered bookies as last read."""
        return self._registered

    def choose(self, count: int, write_quorum: int) -> tuple[str, ...]:
        """Choose the ensemble of a new ledger.

        Args:
            count: Ensemble size.
            write_quorum: Replicas of an entry.

        Raises:
            NotEnoughBookiesError: Fewer bookies are writable.
        """
        writable = self._writable()
        found = self._placement.ensemble(writable, count, write_quorum, self._failed())
        if found is None:
            raise NotEnoughBookiesError(count, len(writable))
        return found

    def replace(self, ensemble: tuple[str, ...], failed: Mapping[int, str], needed: bool) -> Replacements:
        """Choose replacements for failed bookies; see `protocol.bookkeeper.ledger_writer.Replace`."""
        return replacements(
            self._placement,
            self._quarantine,
            self._writable(),
            ensemble,
            failed,
            self._now_ms(),
            needed=needed,
        )

    def successors(self, missing: MissingReplicas) -> Repair | None:
        """Choose bookies for missing replicas; None if none is available."""
        return repair_of(missing, self._placement, self._writable(), self._failed())

    def prefer(self, ensemble: Sequence[str]) -> list[str]:
        """Sort bookies by how likely they answer a read."""
        failed, there = self._failed(), self._registered
        if not failed and there.writable.keys() >= set(ensemble):
            return list(ensemble)
        return sorted(
            ensemble,
            key=lambda one: (one not in there.writable and one not in there.read_only, one in failed),
        )

    def note_failure(self, bookie: str) -> None:
        """Note that a request to a bookie failed."""
        self._quarantine.failed(bookie, self._now_ms())

    # --- requests

    @property
    def frames(self) -> Version3:
        """Encoder of frames that may be sent to several bookies."""
        return self._version3

    def send(self, bookie: str, frame: RequestFrame, timeout_ms: int, done: Callable[[Any], None]) -> None:
        """Send a frame; `done` is called later with the response, or with None if there is none."""
        self._send(0, bookie, frame, timeout_ms, done)

    def request(self, bookie: str, request: Request, timeout_ms: int, done: Callable[[Any], None]) -> None:
        """Send a request in version 3, or version 2 for an add that is too large for it; see `send`."""
        which, frame = 0, self._version3.encode(request)
        if isinstance(request, AddRequest) and sum(map(len, frame[1])) > self._config.frame_max_bytes:
            which, frame = 1, self._version2.encode(request)
        self._send(which, bookie, frame, timeout_ms, done)

    def problem(self, bookie: str) -> str:
        """Return why a bookie gave no response."""
        address = self._registered.address(bookie)
        if address is None:
            return "it is not registered"
        found = (one.problem("{}:{}".format(*address)) for one in self._clients)
        return next(filter(None, found), "it did not answer in time")

    def send_batch(self, bookie: str, batch: RequestBatch, frames: bytes, timeout_ms: int) -> None:
        """Send the frames of a batch in version 3; its callbacks are called later."""
        address = self._registered.address(bookie)
        if address is None:
            loop = asyncio.get_running_loop()
            loop.call_soon(batch.done, batch.number, batch.end - batch.number, None)
        else:
            self._clients[0].send_batch("{}:{}".format(*address), batch, frames, timeout_ms)

    async def answer(self, bookie: str, request: Request, timeout_ms: int, *, version: int = 3) -> Any:
        """Send a request and return the response, or None if there is none."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        frame = (self._version3 if version == 3 else self._version2).encode(request)
        self._send(0 if version == 3 else 1, bookie, frame, timeout_ms, done)
        return await future

    def _send(
        self, which: int, bookie: str, frame: RequestFrame, timeout_ms: int, done: Callable[[Any], None]
    ) -> None:
        address = self._registered.address(bookie)
        if address is None:
            asyncio.get_running_loop().call_soon(done, None)
            return
        host, port = address
        self._clients[which].send(f"{host}:{port}", *frame, timeout_ms, done)

    # --- inside

    def _writable(self) -> list[str]:
        return [name for name, found in self._registered.writable.items() if found and found.address]

    def _failed(self) -> list[str]:
        return self._quarantine.avoided(self._now_ms())

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _follow(self) -> None:
        while True:
            states = self._cluster.bookies.watch()
            with contextlib.suppress(MetadataUnreachableError):
                async with contextlib.aclosing(states):
                    async for found in states:
                        self._registered = found
            # While the metadata store does not answer, keep the last known bookies.
            await asyncio.sleep(RETRY_PAUSE_S)
