"""Administration of masters and slaves."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from pyledger.client.admin.admin import AsyncAdmin
from pyledger.errors import BrokerError, NotPromotedError, RemotingError, RemotingTimeoutError
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.bodies.ha_status import HaStatus

CHANGE_TIMEOUT_MS = 120_000
"""A broker that becomes something else closes its store and opens it again."""
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
            "masterMaxOffset": status.master_commit_log_max_offset if self.has_met_master else None,
            "behindBytes": self.behind_bytes if self.has_met_master else None,
            "missingBytes": own.missing_bytes,
            "master": own.master_addr,
            "connected": own.activated,
            "problem": own.problem,
        }

    @property
    def has_met_master(self) -> bool:
        """Whether a slave has heard, since it started, how far its master is."""
        return self.status.master_commit_log_max_offset >= 0

    @property
    def behind_bytes(self) -> int:
        """What a slave's master had more, as far as it was heard of."""
        return max(0, self.status.master_commit_log_max_offset - self.status.ha_client_info.max_offset)


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
            NotPromotedError: the broker is no slave; its master is alive, had more, or was not met since the
                broker started; another slave has more.
        """
        before = await self.status(address)
        if before.status.master:
            raise NotPromotedError(address, "it is a master already")
        if not force:
            await self._check_promotion(before)
        after = await self._change(address, {"brokerRole": role, "brokerId": "0"}, master=True)
        lost_bytes = before.behind_bytes + before.status.ha_client_info.missing_bytes
        return Standing(address, after.status, lost_bytes)

    async def _check_promotion(self, slave: Standing) -> None:
        own, address = slave.status.ha_client_info, slave.address
        master, others = await self._family(address)
        if own.activated or (master and await self._answers(master)):
            who = own.master_addr if own.activated else master
            raise NotPromotedError(address, f"its master {who} is alive; stop it first")
        if not slave.has_met_master:
            raise NotPromotedError(
                address, "it has not met its master since it started, so what would be lost is not known"
            )
        if slave.behind_bytes:
            raise NotPromotedError(
                address, f"its master had {slave.behind_bytes} bytes more, which would be lost"
            )
        if own.missing_bytes:
            raise NotPromotedError(
                address,
                f"its master had {own.missing_bytes} bytes before this log begins, which would be lost",
            )
        for other in others:
            more = await self._max_offset(other) - own.max_offset
            if more > 0:
                raise NotPromotedError(address, f"the slave {other} has {more} bytes more; promote that one")

    async def demote(self, address: str, broker_id: int = 1) -> Standing:
        """Make a master, `host:port`, the slave with an id."""
        return await self._change(address, {"brokerRole": "SLAVE", "brokerId": str(broker_id)}, master=False)

    async def _family(self, address: str) -> tuple[str, list[str]]:
        """Who else has a broker's name, as name servers know: its master, empty for none, and its slaves."""
        for broker in (await self.clusters()).brokers.values():
            if address in broker.broker_addrs.values():
                others = {number: one for number, one in broker.broker_addrs.items() if one != address}
                return others.pop(MASTER_ID, ""), sorted(others.values())
        return "", []

    async def _answers(self, address: str) -> bool:
        """Whether a broker is alive; RocketMQ 4.x does not know the request, and says so."""
        try:
            await self.status(address)
        except BrokerError:
            return True
        except RemotingError:
            return False
        return True

    async def _max_offset(self, slave: str) -> int:
        """Physical offset (bytes) where a slave's log ends; -1 where it does not say."""
        try:
            return (await self.status(slave)).status.ha_client_info.max_offset
        except RemotingError:
            return -1

    async def _change(self, address: str, wanted: dict[str, str], *, master: bool) -> Standing:
        body = "".join(f"{name}={value}\n" for name, value in wanted.items()).encode()
        await self.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_MS / 1000):
                while True:
                    await asyncio.sleep(LOOK_AGAIN_S)
                    with contextlib.suppress(RemotingError):
                        found = await self.status(address)
                        if found.status.master is master:
                            return found
        except TimeoutError:
            raise RemotingTimeoutError(address, CHANGE_TIMEOUT_MS) from None
