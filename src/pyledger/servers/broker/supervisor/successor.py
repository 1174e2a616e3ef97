"""Starts a broker on the port of one that was closed."""

import asyncio
import logging
from collections.abc import Callable

from pyledger.errors import ListenError
from pyledger.log_events import event, logger
from pyledger.servers.broker.server import Broker

log = logger("broker")

LISTEN_AGAIN_S = 0.5


async def start_successor(make: Callable[[], Broker], is_wanted: Callable[[], bool]) -> None:
    """Start a broker on the port of one that was closed.

    Meanwhile the system may have given the port to another connection. The broker waits for it, as clients,
    slaves and name servers know the broker by this port.

    Args:
        make: Creates the broker; called for each attempt, as a broker that failed to start is closed.
        is_wanted: Returns whether the broker is still wanted.

    Raises:
        ListenError: the port is taken, and the broker is not wanted any more.
        StoreError, ConfigError: as for `Broker.start`.
    """
    while True:
        try:
            await make().start()
            return
        except ListenError as error:
            if not is_wanted():
                raise
            event(log, logging.WARNING, "broker waits for its port", problem=str(error))
        await asyncio.sleep(LISTEN_AGAIN_S)
