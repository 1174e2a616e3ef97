"""The broker that takes the place of another one, on the same port."""

import asyncio
import logging
from collections.abc import Callable

from pyledger.errors import ListenError
from pyledger.log_events import event, logger
from pyledger.servers.broker.server import Broker

log = logger("broker")

LISTEN_AGAIN_S = 0.5


async def start_successor(make: Callable[[], Broker], goes_on: Callable[[], bool]) -> None:
    """Start a broker where another one has listened.

    While nobody listened there, the port may have been given to a connection of somebody else: then it is
    waited for, as clients, slaves and name servers know the broker by it.

    Args:
        make: Makes the broker; called again for each attempt, as one that failed to start is closed.
        goes_on: Whether the broker is still wanted.

    Raises:
        ListenError: the port is taken, and the broker is not wanted any more.
        StoreError, ConfigError: as `Broker.start`.
    """
    while True:
        try:
            await make().start()
            return
        except ListenError as error:
            if not goes_on():
                raise
            event(log, logging.WARNING, "broker waits for its port", problem=str(error))
        await asyncio.sleep(LISTEN_AGAIN_S)
