"""Runs a member of a DLedger group with a broker, and restarts the broker when the leader changes.

The member keeps the log and runs all the time. The broker is a master while the member is the leader, and a
slave otherwise. A change of role closes the broker and starts another on the same port and log.

Source: RocketMQ broker/.../dledger/DLedgerRoleChangeHandler.java.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from pyledger.config.broker import BrokerConfig
from pyledger.config.dledger import DLedgerConfig
from pyledger.config.dledger_broker import DLedgerBrokerConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.config.ha import SLAVE, HaConfig
from pyledger.config.net import NetConfig
from pyledger.config.store import StoreConfig
from pyledger.log_events import event, logger
from pyledger.protocol.dledger.ready import Role, RoleChange
from pyledger.servers.broker.dledger.member import Membership
from pyledger.servers.broker.server import Broker
from pyledger.servers.broker.supervisor.successor import start_successor
from pyledger.servers.dledger.server import DLedgerServer

log = logger("dledger")

MASTER = "sync_master"
MASTER_ID = 0

Make = Callable[[BrokerConfig, HaConfig, Membership], Broker]


def member_of(
    membership: DLedgerBrokerConfig,
    dledger: DLedgerConfig,
    config: BrokerConfig,
    store: StoreConfig,
    net: NetConfig,
) -> DLedgerServer:
    """Create the member that a broker's settings name; its log is in the store's folder."""
    return DLedgerServer(
        membership.group,
        membership.self_id,
        membership.peers,
        config.store_folder,
        config=replace(dledger, append_on_election=False),
        store=DLedgerStoreConfig(
            data_file_size_bytes=store.mapped_file_size_bytes,
            file_reserved_hours=store.retention_hours + 1,
            delete_when=store.delete_when,
            disk_ratio_to_check_expired=store.disk_used_percent_max,
            disk_force_clean_enabled=store.clean_forcibly,
        ),
        net=net,
        serve_appends=False,
    )


class DLedgerSupervisor:
    """Runs a member, and a broker in the member's role."""

    def __init__(
        self, make: Make, config: BrokerConfig, ha: HaConfig, member: DLedgerServer, slave_id: int
    ) -> None:
        """Create the broker without starting it.

        Args:
            make: Creates a broker from its settings, its role and its membership.
            config: The broker's settings; the id follows from the role.
            ha: The settings of a slave; the role is the member's.
            member: The member, not started.
            slave_id: The broker's id while another member leads.
        """
        self._make, self._config, self._ha = make, config, ha
        self._slave_id = slave_id
        self._ports_are_free = not config.port
        self._led_term: int | None = None
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._closing = False
        self.member = member
        member.on_role, member.on_committed = self._role_changed, self._committed
        self.membership = Membership(member, None)
        self.broker = self._made()

    @property
    def address(self) -> str:
        """`host:port` that clients use."""
        return self.broker.address

    @property
    def ended(self) -> asyncio.Event | None:
        """Set when the member, or its broker, cannot continue."""
        return self.member.ended

    async def start(self) -> None:
        """Join the group, and serve as a slave until the leader is known; raises as `Broker.start` does."""
        await self.member.start()
        try:
            await self.broker.start()
        except BaseException:
            await self.member.close()
            raise
        self._config = replace(self._config, port=int(self.address.rpartition(":")[2]))
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Stop the broker, then leave the group. Idempotent."""
        self._closing = True
        self._changed.set()
        self.membership.stand_down()
        if self._following is not None:
            # Let a change in progress finish: otherwise its store would stay open.
            await asyncio.gather(self._following, return_exceptions=True)
        self.membership.stand_down()
        await self.broker.close()
        await self.member.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _made(self) -> Broker:
        leads = self.membership.led_term is not None
        config = replace(self._config, broker_id=MASTER_ID if leads else self._slave_id)
        ha = replace(self._ha, role=MASTER if leads else SLAVE)
        broker = self._make(config, ha, self.membership)
        broker.ports_are_free = self._ports_are_free
        broker.before_serving = self.membership.restore_topics
        return broker

    # --- callbacks of the member

    def _role_changed(self, change: RoleChange) -> None:
        self._led_term = change.term if change.role is Role.LEADER else None
        if self._led_term is None:
            # At once: entries that are committed from now on may replace this leader's own.
            self.membership.stand_down()
        self._changed.set()

    def _committed(self, _index: int) -> None:
        self.membership.committed()
        if self.membership.led_term is None and self.broker.context is not None:
            self.broker.context.held.poll_soon()

    # --- changes of the role

    async def _follow(self) -> None:
        """Restart the broker whenever the member's role has changed."""
        serves = True
        while True:
            await self._changed.wait()
            if self._closing:
                return
            self._changed.clear()
            if serves and self._led_term == self.membership.led_term:
                continue
            try:
                await self._become(self._led_term)
                serves = True
            except Exception:
                serves = False
                if self._changed.is_set():
                    continue  # the role has changed meanwhile
                log.exception("the broker could not take the role of its member")
                if self.ended is not None:
                    self.ended.set()
                return

    async def _become(self, led_term: int | None) -> None:
        event(log, logging.WARNING, "broker changes", leads=led_term is not None, term=led_term)
        await self.broker.close()
        self.membership = Membership(self.member, led_term, self.membership)
        await start_successor(self._succeed, lambda: not self._closing and self._led_term == led_term)

    def _succeed(self) -> Broker:
        self.broker = self._made()
        return self.broker
