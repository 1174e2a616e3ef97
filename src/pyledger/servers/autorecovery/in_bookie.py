"""Autorecovery in the process of bookies, which continue to serve when autorecovery fails."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Protocol

from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.metadata.cancellation import end_if_cancelled

log = logger("autorecovery")

RETRY_S = 5.0
CLOSE_S = 10.0


class BookieService(Protocol):
    """One bookie, or several."""

    ended: asyncio.Event

    @property
    def address(self) -> str:
        """The address for clients."""

    def start(self) -> Awaitable[None]:
        """Start serving."""

    def close(self) -> Awaitable[None]:
        """Stop serving."""


class BookiesWithAutoRecovery:
    """Bookies, and autorecovery of their cluster in the same process.

    Attributes:
        ended: Set when the bookies cannot continue.
    """

    def __init__(
        self,
        bookies: BookieService,
        metadata: str,
        name: str,
        config: AutoRecoveryConfig,
        client: BookkeeperConfig,
        tls: TlsConfig,
    ) -> None:
        """Create them; `start` starts them.

        Args:
            bookies: Bookies that are not started yet.
            metadata: Address of their cluster.
            name: Name shown in votes and locks.
            config: Settings of autorecovery.
            client: Settings of the client that connects to bookies.
            tls: Certificates, and whether that client uses TLS.
        """
        self._bookies, self.ended = bookies, bookies.ended
        self._arguments = metadata, name, config, client, tls
        self._autorecovery: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The address of the bookies."""
        return self._bookies.address

    async def start(self) -> None:
        """Start the bookies; autorecovery starts in the background."""
        await self._bookies.start()
        self._autorecovery = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop both. Idempotent."""
        if self._autorecovery is not None:
            self._autorecovery.cancel()
            # Autorecovery may hang when the metadata store is unreachable; that must not block the bookies.
            await asyncio.wait([self._autorecovery], timeout=CLOSE_S)
        await self._bookies.close()

    async def _run(self) -> None:
        # Imported here, so that a bookie serves sooner.
        from pyledger.servers.autorecovery.service import AutoRecovery  # noqa: PLC0415

        metadata, name, config, client, tls = self._arguments
        while True:
            service = AutoRecovery(metadata, name, config=config, client=client, tls=tls)
            try:
                await service.start()
                await service.ended.wait()
            except PyLedgerError as error:
                event(log, logging.WARNING, "autorecovery not started", problem=error)
            except Exception as error:  # noqa: BLE001 - it is restarted after any error
                event(log, logging.ERROR, "autorecovery ended", problem=repr(error))
            finally:
                with contextlib.suppress(PyLedgerError):
                    await service.close()
            end_if_cancelled()
            await asyncio.sleep(RETRY_S)
