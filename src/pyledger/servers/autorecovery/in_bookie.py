"""Autorecovery inside the process of bookies: the bookies come first, and go on when it cannot."""

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


class Bookies(Protocol):
    """A bookie, or several."""

    ended: asyncio.Event

    @property
    def address(self) -> str:
        """What clients are given."""

    def start(self) -> Awaitable[None]:
        """Begin to serve."""

    def close(self) -> Awaitable[None]:
        """Serve no more."""


class BookiesWithAutoRecovery:
    """Bookies that serve, and autorecovery of their cluster beside them.

    Attributes:
        ended: Set when the bookies cannot go on.
    """

    def __init__(
        self,
        bookies: Bookies,
        metadata: str,
        name: str,
        config: AutoRecoveryConfig,
        client: BookkeeperConfig,
        tls: TlsConfig,
    ) -> None:
        """Begins with `start`.

        Args:
            bookies: Not started yet.
            metadata: Address of their cluster.
            name: Told to people by votes and locks.
            config: Of autorecovery.
            client: How it asks bookies.
            tls: Certificates, and whether it asks them by TLS.
        """
        self._bookies, self.ended = bookies, bookies.ended
        self._made = metadata, name, config, client, tls
        self._beside: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """That of the bookies."""
        return self._bookies.address

    async def start(self) -> None:
        """Start the bookies; autorecovery follows by itself."""
        await self._bookies.start()
        self._beside = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End both. Idempotent."""
        if self._beside is not None:
            self._beside.cancel()
            # The bookies end whatever it waits for: who cannot reach the metadata must not be held up by it.
            await asyncio.wait([self._beside], timeout=CLOSE_S)
        await self._bookies.close()

    async def _run(self) -> None:
        # Imported here, so that a bookie serves sooner.
        from pyledger.servers.autorecovery.service import AutoRecovery  # noqa: PLC0415

        metadata, name, config, client, tls = self._made
        while True:
            service = AutoRecovery(metadata, name, config=config, client=client, tls=tls)
            try:
                await service.start()
                await service.ended.wait()
            except PyLedgerError as error:
                event(log, logging.WARNING, "autorecovery not started", problem=error)
            except Exception as error:  # noqa: BLE001 - it is made anew, whatever ended it
                event(log, logging.ERROR, "autorecovery ended", problem=repr(error))
            finally:
                with contextlib.suppress(PyLedgerError):
                    await service.close()
            end_if_cancelled()
            await asyncio.sleep(RETRY_S)
