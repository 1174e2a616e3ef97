"""Restarts a broker in place when its role changes or its log must be truncated.

Both require a closed store, so the broker is closed and another one is started on the same port. The role
that an operator has set is stored in the store's folder and overrides the settings.

Source: RocketMQ broker/.../BrokerController.java (changeToMaster, changeToSlave).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pyledger.clock import SystemClock
from pyledger.config.broker import BrokerConfig
from pyledger.config.ha import SLAVE, HaConfig
from pyledger.log_events import event, logger
from pyledger.servers.broker.context import BrokerContext
from pyledger.servers.broker.dledger.restored_topics import restore_topics
from pyledger.servers.broker.ha.slave import SlaveBroker
from pyledger.servers.broker.server import Broker
from pyledger.servers.broker.supervisor.successor import start_successor
from pyledger.store.files.config_files import TopicTable
from pyledger.store.files.meta_file import read_json, write_json
from pyledger.store.maintenance.truncate_log import truncate_log

log = logger("ha")

ROLE_FILE = "brokerRole.json"
CONFIG_FOLDER = "config"
ANSWER_FIRST_S = 0.05
"""The response to the request for the change is sent before."""


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """A change that requires a restart."""

    role: str | None = None
    """The new role, as in `HaConfig.role`; None: unchanged."""
    broker_id: int | None = None
    end_offset: int | None = None
    """Physical offset (bytes) at which to truncate the log; None: unchanged."""


Make = Callable[[BrokerConfig, HaConfig], Broker]


class HaSupervisor:
    """Runs a broker, and replaces it when its role or its log must change."""

    def __init__(self, make: Make, config: BrokerConfig, ha: HaConfig) -> None:
        """Create the broker without starting it.

        Args:
            make: Creates a broker from its settings and its role.
            config: The broker's settings.
            ha: The broker's role.
        """
        self._make = make
        self._folder = Path(config.store_folder)
        self._config, self._ha = self._kept(config, ha)
        self._copied_where: int | None = None
        """Physical offset (bytes) up to which the broker, as a slave, knew the topics."""
        self._ports_are_free = not config.port
        self.broker = self._made()
        self._change: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def address(self) -> str:
        """`host:port` that clients use."""
        return self.broker.address

    async def start(self) -> None:
        """Start the broker; raises as `Broker.start` does."""
        await self.broker.start()
        self._config = replace(self._config, port=int(self.address.rpartition(":")[2]))

    async def close(self) -> None:
        """Stop it. Idempotent."""
        self._closing = True
        if self._change is not None:
            await asyncio.gather(self._change, return_exceptions=True)
        await self.broker.close()

    def _made(self) -> Broker:
        broker = self._make(self._config, self._ha)
        broker.ports_are_free = self._ports_are_free
        broker.on_diverged = lambda end_offset: self.change(BrokerChange(end_offset=end_offset))
        broker.before_serving = self._restore_topics
        broker.change_role = lambda role, broker_id: self.change(BrokerChange(role, broker_id))
        return broker

    def _restore_topics(self, context: BrokerContext) -> None:
        if self._copied_where is not None and self._ha.role != SLAVE:
            restore_topics(context, self._copied_where)

    def _succeed(self) -> Broker:
        self.broker = self._made()
        return self.broker

    def change(self, change: BrokerChange) -> None:
        """Start a change, unless one is in progress."""
        if self._change is None or self._change.done():
            self._change = asyncio.get_running_loop().create_task(self._become(change))

    async def _become(self, change: BrokerChange) -> None:
        await asyncio.sleep(ANSWER_FIRST_S)
        event(log, logging.WARNING, "broker changes", role=change.role, end_offset=change.end_offset)
        before = None if self.broker.context is None else self.broker.context.replication
        self._copied_where = before.sync.complete_where if isinstance(before, SlaveBroker) else None
        try:
            await self.broker.close()
            if change.end_offset is not None:
                kept_in = await asyncio.to_thread(truncate_log, self._folder, change.end_offset)
                event(
                    log, logging.WARNING, "log truncated", offset=change.end_offset, removed_bytes_in=kept_in
                )
            if change.role is not None:
                broker_id = self._config.broker_id if change.broker_id is None else change.broker_id
                if self._ha.role == SLAVE != change.role:
                    await asyncio.to_thread(self._outrank)
                self._ha = replace(self._ha, role=change.role)
                self._config = replace(self._config, broker_id=broker_id)
                await asyncio.to_thread(self._keep)
            await start_successor(self._succeed, lambda: not self._closing)
        except Exception:
            log.exception("the broker could not be restarted")
            raise

    # --- the role that an operator has set

    def _outrank(self) -> None:
        """Raise the state version of the topics, so that name servers prefer this master to the last one."""
        folder = self._folder / CONFIG_FOLDER
        found = TopicTable.read(folder)
        replace(found, version=found.version.of_new_master(SystemClock().now_ms())).write(folder)

    def _keep(self) -> None:
        document = {"brokerRole": self._ha.role, "brokerId": self._config.broker_id}
        write_json(self._folder / CONFIG_FOLDER / ROLE_FILE, document)

    def _kept(self, config: BrokerConfig, ha: HaConfig) -> tuple[BrokerConfig, HaConfig]:
        found: Any = read_json(self._folder / CONFIG_FOLDER / ROLE_FILE)
        if not found:
            return config, ha
        kept = replace(ha, role=str(found["brokerRole"]))
        if kept.role != ha.role:
            event(
                log,
                logging.WARNING,
                "role was changed by an operator and differs from the settings",
                role=kept.role,
                file=str(self._folder / CONFIG_FOLDER / ROLE_FILE),
            )
        return replace(config, broker_id=int(found["brokerId"])), kept

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
