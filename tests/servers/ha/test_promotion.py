"""A slave is promoted only when its master and the other slaves were asked, whatever it is called."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pyledger.client.admin.ha import ReplicationAdmin
from pyledger.config.client import ClientConfig
from pyledger.errors import NotPromotedError, RemotingError
from pyledger.servers.broker.supervisor.ha_supervisor import HaSupervisor
from tests.net.conftest import Run
from tests.servers.ha.pair import Pair, brokers, caught_up, replication, until
from tests.servers.ha.test_changes import replicas, supervisor
from tests.servers.ha.test_pairs import send_many
from tests.servers.namesrv.peers import name_server
from tests.support.ports import free_ports


def asking(*name_servers: str) -> ReplicationAdmin:
    return ReplicationAdmin(client=ClientConfig(name_servers=";".join(name_servers)))


@asynccontextmanager
async def two_slaves(
    pair: Pair, role: str = "async_master"
) -> AsyncIterator[tuple[HaSupervisor, HaSupervisor]]:
    """A slave that lacks acknowledged messages and does not know it, and one that has them; no master."""
    first = supervisor(pair, 0, role)
    behind, foremost = supervisor(pair, 1, "slave"), supervisor(pair, 2, "slave")
    async with first, behind, foremost:
        await until(lambda: replicas(first) == 2)
        await send_many(first.broker, 5)
        for slave in (behind, foremost):
            await caught_up(first.broker, slave.broker)
            await replication(slave.broker).sync.fetch_master_end()
        await replication(behind.broker).close()
        await send_many(first.broker, 5)
        await caught_up(first.broker, foremost.broker)
        await first.broker.close()
        await until(lambda: replication(foremost.broker).ha_client.connection is None)
        yield behind, foremost


def test_a_slave_is_found_by_its_name_and_not_by_how_its_address_is_written(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, two_slaves(pair) as (behind, foremost):
            more = foremost.broker.store.max_offset - behind.broker.store.max_offset
            problem = f"the slave {foremost.address} has {more} bytes more"
            also = behind.address.replace("127.0.0.1", "localhost")
            async with name_server(tmp_path / "empty") as empty, asking(pair.name_server.address) as tool:
                for address in (behind.address, also):
                    with pytest.raises(NotPromotedError, match=problem):
                        await tool.promote(address)
                # What one name server does not know, another one does.
                async with asking(empty.address, pair.name_server.address) as both:
                    with pytest.raises(NotPromotedError, match=problem):
                        await both.promote(also)
                    also = foremost.address.replace("127.0.0.1", "localhost")
                    assert (await both.promote(also)).document()["brokerRole"] == "ASYNC_MASTER"

    run(main())


def test_a_slave_that_no_name_server_knows_is_not_promoted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, two_slaves(pair, "sync_master") as (behind, _):
            async with name_server(tmp_path / "empty") as empty, asking(empty.address) as tool:
                with pytest.raises(NotPromotedError, match=r"do not know broker-a 1 of DefaultCluster.*-n"):
                    await tool.promote(behind.address)
            async with asking(f"127.0.0.1:{free_ports(1)[0]}") as tool:
                with pytest.raises(RemotingError):
                    await tool.promote(behind.address)
                done = await tool.promote(behind.address, force=True)
                assert done.document()["brokerRole"] == "SYNC_MASTER"

    run(main())


def test_a_slave_that_does_not_answer_may_have_more(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, two_slaves(pair) as (behind, foremost):
            address = foremost.address
            for server in foremost.broker._servers:  # its name server still knows it
                await server.close(0)
            async with asking(pair.name_server.address) as tool:
                with pytest.raises(NotPromotedError, match=f"{address} does not report its offset"):
                    await tool.promote(behind.address)

    run(main())
