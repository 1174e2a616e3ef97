"""A client that reads without a group follows the queues and the addresses of brokers."""

import asyncio

from pyledger.client import AsyncPullConsumer
from pyledger.config.client import ClientConfig
from pyledger.net.loop import run
from pyledger.net.remoting.server import RemotingServer
from tests.client.peers import ScriptedBroker, cluster

PATIENCE_S = 60


def test_queues_are_those_of_now() -> None:
    async def main() -> None:
        async with cluster() as made, AsyncPullConsumer("g", made.address) as consumer:
            assert len(await consumer.queues("Orders")) == 2
            made.topics["Orders"] = 5
            assert len(await consumer.queues("Orders")) == 5

    run(main())


def test_a_master_elsewhere_is_found() -> None:
    """Nothing asks for the topic again but the client itself, as often as it is told to."""

    async def main() -> None:
        settings = ClientConfig(poll_name_server_interval_ms=100)
        async with cluster() as made, AsyncPullConsumer("g", made.address, client=settings) as consumer:
            queue = (await consumer.queues("Orders"))[0]
            await consumer.commit(queue, 1)
            moved = ScriptedBroker(queue.broker_name)
            moved.server = RemotingServer(moved.handle)
            await moved.server.start()
            first, made.brokers = made.brokers, [moved]
            try:
                while not moved.requests:
                    await consumer.commit(queue, 2)
                    await asyncio.sleep(0.01)
            finally:
                made.brokers = [*first, moved]

    run(asyncio.wait_for(main(), PATIENCE_S))
