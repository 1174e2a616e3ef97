"""Administration of masters and slaves."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from pyledger.client.admin.admin import AsyncAdmin
from pyledger.config import properties
from pyledger.errors import BrokerError, NotPromotedError, RemotingError, RemotingTimeoutError
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.route import MASTER_ID, BrokerRoute
from pyledger.wire.remoting.bodies.ha_status import HaStatus
from pyledger.wire.remoting.bodies.route import decode_clusters

CHANGE_TIMEOUT_MS = 120_000
"""A broker that changes its role closes its store and opens it again."""
POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class BrokerHaState:
    """The role of a broker, and its offsets."""

    address: str
    status: HaStatus
    lost_bytes: int = 0
    """Bytes of the old master that this broker does not have, by the master's last report to it."""

    def document(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        status, own = self.status, self.status.ha_client_info
        found: dict[str, Any] = {
            "address": self.address,
            "role": "master" if status.master else "slave",
            "brokerRole": status.broker_role or None,
        }
        if status.master:
            return found | {
                "maxOffset": status.master_commit_log_max_offset,
                "inSyncSlaves": status.in_sync_slave_nums,
                "slaves": [
                    {
                        "address": one.addr,
                        "ackOffset": one.slave_ack_offset,
                        "lagBytes": one.diff,
                        "inSync": one.in_sync,
                    }
                    for one in status.ha_connection_info
                ],
                "lostBytes": self.lost_bytes,
            }
        return found | {
            "maxOffset": own.max_offset,
            "masterMaxOffset": status.master_commit_log_max_offset if self.has_met_master else None,
            "lagBytes": self.lag_bytes if self.has_met_master else None,
            "missingBytes": own.missing_bytes,
            "master": own.master_addr,
            "masterRole": own.master_role or None,
            "connected": own.activated,
            "problem": own.problem,
        }

    @property
    def has_met_master(self) -> bool:
        """Whether a slave has received its master's offset since it started."""
        return self.status.master_commit_log_max_offset >= 0

    @property
    def lag_bytes(self) -> int:
        """Lag of a slave in bytes, by its master's last report."""
        return max(0, self.status.master_commit_log_max_offset - self.status.ha_client_info.max_offset)


class ReplicationAdmin(AsyncAdmin):
    """Reads the state of masters and slaves, and changes their roles."""

    async def status(self, address: str) -> BrokerHaState:
        """Return the state of a broker, `host:port`."""
        answer = await self.request(address, RequestCode.GET_BROKER_HA_STATUS)
        return BrokerHaState(address, HaStatus.decode(answer.body))

    async def promote(self, address: str, role: str = "", *, force: bool = False) -> BrokerHaState:
        """Make a slave, `host:port`, the master.

        Args:
            address: The slave.
            role: Its new role, `ASYNC_MASTER` or `SYNC_MASTER`; empty: that of its master.
            force: Promote it even if the master is alive or had more than the slave.

        Raises:
            NotPromotedError: the broker is not a slave; its master is alive, had more, or was not met since
                the broker started; another slave has more, or does not report its offset; the name servers do
                not know the broker; no role is given, and that of its master is not known.
        """
        before = await self.status(address)
        own = before.status.ha_client_info
        if before.status.master:
            raise NotPromotedError(address, "it is a master already", "ha demote makes it a slave")
        if not force:
            await self._check_promotion(before)
        role = role or own.master_role
        if not role:
            raise NotPromotedError(
                address, "it does not know whether its master was a SYNC_MASTER", "choose with --role"
            )
        after = await self._change(address, {"brokerRole": role, "brokerId": "0"}, master=True)
        return BrokerHaState(address, after.status, before.lag_bytes + own.missing_bytes)

    async def _check_promotion(self, slave: BrokerHaState) -> None:
        own, address = slave.status.ha_client_info, slave.address
        masters, others = await self._family(address)
        alive = [own.master_addr] if own.activated else [one for one in masters if await self._answers(one)]
        if alive:
            raise NotPromotedError(address, f"its master {alive[0]} is alive; stop it first")
        if not slave.has_met_master:
            raise NotPromotedError(
                address, "it has not met its master since it started, so what would be lost is not known"
            )
        if slave.lag_bytes:
            raise NotPromotedError(
                address, f"its master had {slave.lag_bytes} bytes more, which would be lost"
            )
        if own.missing_bytes:
            raise NotPromotedError(
                address,
                f"its master had {own.missing_bytes} bytes before this log begins, which would be lost",
            )
        for other in others:
            end_offset = await self._max_offset(other)
            if end_offset is None:
                raise NotPromotedError(
                    address, f"the slave {other} does not report its offset, and may have more; start it"
                )
            more = end_offset - own.max_offset
            if more > 0:
                raise NotPromotedError(address, f"the slave {other} has {more} bytes more; promote that one")

    async def demote(self, address: str, broker_id: int = 1) -> BrokerHaState:
        """Make a master, `host:port`, a slave with the given id."""
        return await self._change(address, {"brokerRole": "SLAVE", "brokerId": str(broker_id)}, master=False)

    async def _family(self, address: str) -> tuple[list[str], list[str]]:
        """Return the masters and the other slaves of a slave's broker name, from all name servers.

        The slave reports its own name: name servers may know it by another address.

        Raises:
            NotPromotedError: no name server knows the slave.
        """
        answer = await self.request(address, RequestCode.GET_BROKER_CONFIG)
        own = properties.parse(str(answer.body, "utf-8", "replace"))
        cluster, name, number = (own.get(f"broker{one}", "") for one in ("ClusterName", "Name", "Id"))
        known = [
            one
            for broker in await self._brokers_of(name)
            if broker.cluster == cluster
            for one in broker.broker_addrs.items()
        ]
        if number not in {str(one) for one, _ in known}:
            raise NotPromotedError(
                address,
                f"the name servers {self.client.name_servers} do not know {name} {number} of {cluster}, so "
                "neither its master nor other slaves can be queried; name its own with -n",
            )
        masters = {where for one, where in known if one == MASTER_ID}
        others = {where for one, where in known if one != MASTER_ID and where != address}
        return sorted(masters), sorted(others)

    async def _brokers_of(self, name: str) -> list[BrokerRoute]:
        """Return the brokers of a name that each name server knows.

        Raises:
            RemotingError: no name server answers.
        """
        found, failure = [], None
        for name_server in self.client.name_server_addresses:
            try:
                answer = await self.request(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
            except RemotingError as error:
                failure = error
            else:
                found.append(decode_clusters(answer.body).brokers.get(name))
        if failure is not None and not found:
            raise failure
        return [one for one in found if one is not None]

    async def _answers(self, address: str) -> bool:
        """Whether a broker is alive; RocketMQ 4.x is, although it rejects the request."""
        try:
            await self.status(address)
        except BrokerError:
            return True
        except RemotingError:
            return False
        return True

    async def _max_offset(self, slave: str) -> int | None:
        """Return the end of a slave's log (bytes), from the status that all versions report, or None."""
        try:
            return int((await self.broker_status(slave))["commitLogMaxOffset"])
        except (RemotingError, KeyError, ValueError):
            return None

    async def _change(self, address: str, wanted: dict[str, str], *, master: bool) -> BrokerHaState:
        body = "".join(f"{name}={value}\n" for name, value in wanted.items()).encode()
        await self.request(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_MS / 1000):
                while True:
                    await asyncio.sleep(POLL_INTERVAL_S)
                    with contextlib.suppress(RemotingError):
                        found = await self.status(address)
                        if found.status.master is master:
                            return found
        except TimeoutError:
            raise RemotingTimeoutError(address, CHANGE_TIMEOUT_MS) from None
