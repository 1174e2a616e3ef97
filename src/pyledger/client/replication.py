"""Administration of masters and slaves."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pyledger.client.admin import AsyncAdmin
from pyledger.errors import NotPromotedError, RemotingError
from pyledger.wire.codes import RequestCode
from pyledger.wire.ha_status import HaStatus

CHANGE_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.1
MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a broker is, and how far."""

    address: str
    status: HaStatus
    lost_bytes: int = 0
    """What the old master had and this broker has not, as far as it was heard of."""

    def document(self) -> dict[str, Any]:
        """For people and programs."""
        status, own = self.status, self.status.ha_client_info
        found: dict[str, Any] = {"address": self.address, "role": "master" if status.master else "slave"}
        if status.master:
            return found | {
                "maxOffset": status.master_commit_log_max_offset,
                "inSyncSlaves": status.in_sync_slave_nums,
                "slaves": [
                    {
                        "address": one.addr,
                        "ackOffset": one.slave_ack_offset,
                        "behindBytes": one.diff,
                        "inSync": one.in_sync,
                    }
                    for one in status.ha_connection_info
                ],
                "lostBytes": self.lost_bytes,
            }
        return found | {
            "maxOffset": own.max_offset,
            "masterMaxOffset": status.master_commit_log_max_offset,
            "behindBytes": max(0, status.master_commit_log_max_offset - own.max_offset),
            "master": own.master_addr,
            "connected": own.activated,
        }


class ReplicationAdmin(AsyncAdmin):
    """Looks at masters and slaves, and changes who is which."""

    async def status(self, address: str) -> Standing:
        """How a broker, `host:port`, stands."""
        answer = await self.ask(address, RequestCode.GET_BROKER_HA_STATUS)
        return Standing(address, HaStatus.decode(answer.body))

    async def promote(self, address: str, role: str = "ASYNC_MASTER", *, force: bool = False) -> Standing:
        """Make a slave, `host:port`, the master.

        Args:
            address: The slave.
            role: What it becomes.
            force: Although the master is alive, or had more than the slave.

        Raises:
            NotPromotedError: the master is alive, or had more, or the broker is no slave.
        """
        before = await self.status(address)
        own = before.status.ha_client_info
        if before.status.master:
            raise NotPromotedError(address, "it is a master already")
        lost_bytes = max(0, before.status.master_commit_log_max_offset - own.max_offset)
        if not force:
            if own.activated or (master := await self._living_master(address)) is not None:
                who = own.master_addr if own.activated else master
                raise NotPromotedError(address, f"its master {who} is alive; stop it first")
            if lost_bytes:
                raise NotPromotedError(
                    address, f"its master had {lost_bytes} bytes more, which would be lost"
                )
        after = await self._change(address, {"brokerRole": role, "brokerId": "0"}, master=True)
        return Standing(address, after.status, lost_bytes)

    async def demote(self, address: str, broker_id: int = 1) -> Standing:
        """Make a master, `host:port`, the slave with an id."""
        return await self._change(address, {"brokerRole": "SLAVE", "brokerId": str(broker_id)}, master=False)

    async def _living_master(self, address: str) -> str | None:
        """The other broker that name servers know as master of a broker's name, if it answers."""
        for broker in (await self.clusters()).brokers.values():
            master = broker.broker_addrs.get(MASTER_ID)
            if address in broker.broker_addrs.values() and master not in (None, address):
                try:
                    await self.status(str(master))
                except RemotingError:
                    return None
                return master
        return None

    async def _change(self, address: str, wanted: dict[str, str], *, master: bool) -> Standing:
        body = "".join(f"{name}={value}\n" for name, value in wanted.items()).encode()
        await self.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        async with asyncio.timeout(CHANGE_TIMEOUT_S):
            while True:
                await asyncio.sleep(LOOK_AGAIN_S)
                try:
                    found = await self.status(address)
                except RemotingError:
                    continue
                if found.status.master is master:
                    return found
