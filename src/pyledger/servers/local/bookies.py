"""Several bookies and the metadata of their cluster in one process, for development and tests."""

import asyncio
import os
from functools import partial
from pathlib import Path

from pyledger.config.bookie import BookieConfig
from pyledger.config.fields import checked_limit
from pyledger.config.net import TlsConfig
from pyledger.metadata.cluster import Cluster, locate
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.servers.local.thread import BackgroundService
from pyledger.store.bookkeeper.folder import BookiePaths

METADATA_FILE = "metadata.db"


class AsyncLocalBookies:
    """Bookies on free ports of loopback, with the cluster metadata in a file beside their folders.

    Attributes:
        bookies: In the order of their names, `bookie-1` and so on.
        ended: Set when one of them cannot continue.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        count: int,
        *,
        config: BookieConfig | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        """Create the bookies without starting them.

        Args:
            folder: Folder of all files, created when it is missing.
            count: Number of bookies.
            config: Settings of each bookie.
            tls: Certificates of all bookies; None: no TLS.

        Raises:
            ConfigError: there would be no bookie.
        """
        checked_limit("count", count, 1)
        self.folder = Path(folder)
        self.ended = asyncio.Event()
        self.bookies = [self._bookie(f"bookie-{number}", config, tls) for number in range(1, count + 1)]

    @property
    def address(self) -> str:
        """Address of the cluster metadata, for clients."""
        return f"sqlite:{self.folder / METADATA_FILE}"

    async def start(self) -> None:
        """Create the cluster where it is missing, and start all bookies.

        Raises:
            PyLedgerError: one of them cannot start; all are stopped.
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
        """Open a session for one bookie: its end removes only this bookie's registration."""
        return locate(self.address)


class LocalBookies(BackgroundService[AsyncLocalBookies]):
    """Bookies and their cluster that serve within a `with` block, for tests."""

    def __init__(self, count: int = 3, *, folder: str | os.PathLike[str] | None = None) -> None:
        """Prepare bookies on free ports of loopback.

        Args:
            count: Number of bookies.
            folder: Folder of all files, created when missing; None: a temporary one, deleted at the end.

        Raises:
            ConfigError: there would be no bookie.
        """
        make = partial(AsyncLocalBookies, count=count)
        super().__init__(None if folder is None else Path(folder), make, "pyledger-bookies")

    @property
    def metadata(self) -> str:
        """Address of the cluster metadata, for clients."""
        return self._service.address

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each bookie."""
        return [bookie.address for bookie in self._service.bookies]

    @property
    def folder(self) -> Path:
        """Folder with the folders of all bookies, `bookie-1` and so on."""
        return self._service.folder
