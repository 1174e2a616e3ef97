"""kill -9 of a sync master under load: its slave takes over, and nothing that was acknowledged is missing."""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyledger.client.admin.ha import ReplicationAdmin
from pyledger.config.client import ClientConfig
from tests.servers.broker.peers import send
from tests.servers.broker.process import BrokerProcess
from tests.servers.ha.pair import brokers

ROUNDS = int(os.environ.get("PYLEDGER_KILL_ROUNDS", "5"))
SENDERS = 4


async def load(master: BrokerProcess, acknowledged: list[bytes], enough: asyncio.Event, sender: int) -> None:
    """Send until the master is gone; notes what it answered with success."""
    number = 0
    try:
        async with master.peer() as client:
            while True:
                body = b"%d-%d" % (sender, number)
                if (await client.request(send("T", body, queue_id=sender))).code == 0:
                    acknowledged.append(body)
                number += 1
                if len(acknowledged) > 200:
                    enough.set()
    except OSError:
        return


async def killed_once(folder: Path) -> None:
    """One pair from its start to the end of its master."""
    async with brokers(folder) as pair:
        named = {
            "namesrvAddr": pair.name_server.address,
            "admin_enabled": "true",
            "flushDiskType": "ASYNC_FLUSH",
        }
        master = BrokerProcess(folder, brokerRole="SYNC_MASTER", **named)
        (folder / "slave").mkdir()
        slave = BrokerProcess(folder / "slave", brokerRole="SLAVE", brokerId=1, **named)
        with ExitStack() as stack:
            for one in (master, slave):
                await asyncio.to_thread(one.start)
                stack.callback(one.kill)
            client = ClientConfig(name_servers=pair.name_server.address)
            async with ReplicationAdmin(client=client) as tool:
                where = f"127.0.0.1:{slave.port}"
                while not (await tool.status(where)).status.ha_client_info.activated:
                    await asyncio.sleep(0.01)
                acknowledged: list[bytes] = []
                enough = asyncio.Event()
                senders = [asyncio.create_task(load(master, acknowledged, enough, n)) for n in range(SENDERS)]
                await enough.wait()
                master.kill()
                await asyncio.gather(*senders)
                done = await tool.promote(where, force=True)
                assert done.status.master
        found = slave.bodies("T")
        assert not set(acknowledged) - set(found)
        assert len(found) == len(set(found))


@pytest.mark.timeout(60 * ROUNDS)
def test_what_was_acknowledged_is_at_the_slave(tmp_path: Path) -> None:
    """`PYLEDGER_KILL_ROUNDS=100` for more than the ordinary few."""
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
        asyncio.run(killed_once(tmp_path / str(number)))
