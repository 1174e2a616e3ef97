"""Several bookies and the metadata of their cluster in one process, for development and tests."""

import asyncio
import os
from functools import partial
from pathlib import Path

from pyledger.config.bookie import BookieConfig
from pyledger.config.net import TlsConfig
from pyledger.metadata.cluster import Cluster, locate
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.servers.local.thread import BackgroundService
from pyledger.store.bookkeeper.folder import BookiePaths

METADATA_FILE = "metadata.db"


class AsyncLocalBookies:
    """Bookies on free ports of loopback, with a cluster in a file beside their folders.

    Attributes:
        bookies: In the order of their names, `bookie-1` and so on.
        ended: Set when one of them cannot go on.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        count: int,
        *,
        config: BookieConfig | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        """Bookies that begin with `start`.

        Args:
            folder: Holds all of it; made where it is missing.
            count: How many bookies.
            config: Of each.
            tls: Certificates of all; without, they speak no TLS.
        """
        self.folder = Path(folder)
        self.ended = asyncio.Event()
        self.bookies = [self._bookie(f"bookie-{number}", config, tls) for number in range(1, count + 1)]

    @property
    def address(self) -> str:
        """What clients are given: where the metadata is."""
        return f"sqlite:{self.folder / METADATA_FILE}"

    async def start(self) -> None:
        """Make the cluster where there is none, and start all bookies.

        Raises:
            PyLedgerError: One of them cannot start; none runs then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        async with locate(self.address) as cluster:
            await cluster.format()
        try:
            for bookie in self.bookies:
                await bookie.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop all bookies. Idempotent."""
        for bookie in self.bookies:
            await bookie.close()

    def _bookie(self, name: str, config: BookieConfig | None, tls: TlsConfig | None) -> BookieServer:
        home = self.folder / name
        bookie = BookieServer(
            BookiePaths.below(home), config=config, tls=tls, cluster=self._cluster(), bookie_id=name
        )
        bookie.ended = self.ended
        return bookie

    def _cluster(self) -> Cluster:
        """A session of its own for each: when a bookie ends, only it is gone."""
        return locate(self.address)


class LocalBookies(BackgroundService[AsyncLocalBookies]):
    """Bookies and their cluster that serve within a `with` block, for tests."""

    def __init__(self, count: int = 3, *, folder: str | os.PathLike[str] | None = None) -> None:
        """Bookies on free ports of loopback.

        Args:
            count: How many.
            folder: Holds their folders, made when it is missing; None: a temporary one, deleted at the end.
        """
        make = partial(AsyncLocalBookies, count=count)
        super().__init__(None if folder is None else Path(folder), make, "pyledger-bookies")

    @property
    def metadata(self) -> str:
        """Where the metadata is: what clients need to know."""
        return self._service.address

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each bookie."""
        return [bookie.address for bookie in self._service.bookies]

    @property
    def folder(self) -> Path:
        """Holds the folders of all bookies, `bookie-1` and so on."""
        return self._service.folder
