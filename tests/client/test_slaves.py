"""A push consumer whose master dies and comes back, with a slave that has the same messages."""

import asyncio
from collections import Counter

from pyledger.client import AsyncPushConsumer, ClientConfig, ReceivedMessage
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import BrokerRoute, QueueRoute, TopicRoute
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.protocol.broker.pull_rules import PullFlag
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat
from pyledger.wire.remoting.bodies.membership import ConsumerIds
from pyledger.wire.remoting.bodies.route import encode_route
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pyledger.wire.remoting.headers.query import (
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.client.peers import READ_WRITE
from tests.client.scenarios import until
from tests.models.record_encoder import Draft
from tests.net.conftest import Run

TOPIC = "Orders"
HOLD_S = 0.2
BATCH = 5


class Replica:
    """A broker of one queue whose messages are numbers; a pull that finds none is held for a moment."""

    def __init__(self, broker_id: int, pair: "Pair") -> None:
        self.broker_id, self.pair = broker_id, pair
        self.pulls: list[PullMessageRequestHeader] = []
        self.server: RemotingServer | None = None
        self.port = 0

    async def start(self) -> None:
        self.server = RemotingServer(self.handle, port=self.port)
        await self.server.start()
        self.port = self.server.port

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.close()
        self.server = None

    async def handle(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.HEART_BEAT:
            self.pair.client_id = Heartbeat.decode(request.body).client_id or ""
        elif request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            return request.response(body=ConsumerIds(consumer_id_list=(self.pair.client_id,)).encode())
        elif request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return request.response(header=QueryConsumerOffsetResponseHeader(offset=self.pair.committed))
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.pair.committed = request.header(UpdateConsumerOffsetRequestHeader).commit_offset
        elif request.code == RequestCode.PULL_MESSAGE:
            return await self.pull(request)
        return request.response()

    async def pull(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(PullMessageRequestHeader)
        self.pulls.append(header)
        if header.queue_offset >= self.pair.end:
            await asyncio.sleep(HOLD_S)
        end = min(self.pair.end, header.queue_offset + BATCH)
        found = range(header.queue_offset, end)
        body = b"".join(record(offset) for offset in found)
        # As upstream: a slave sends its readers back as soon as the master is alive again.
        suggested = 1 if self.broker_id and self.pair.master.server is None else self.pair.suggested
        header = PullMessageResponseHeader(
            suggest_which_broker_id=suggested, next_begin_offset=end, min_offset=0, max_offset=self.pair.end
        )
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return request.response(code, header=header, body=body)


class Pair:
    """Master, slave and a name server that drops the master when it dies."""

    def __init__(self) -> None:
        self.master, self.slave = Replica(0, self), Replica(1, self)
        self.end = 0
        self.committed = 0
        self.suggested = 0
        self.client_id = ""
        self.name_server = RemotingServer(self.route)

    def route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        if request.ext_fields["topic"] != TOPIC:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        alive = [one for one in (self.master, self.slave) if one.server is not None]
        addresses = {one.broker_id: f"127.0.0.1:{one.port}" for one in alive}
        route = TopicRoute(
            queues=(QueueRoute("a", 1, 1, READ_WRITE),), brokers=(BrokerRoute("C", "a", addresses),)
        )
        return request.response(body=encode_route(route, standard=True))


def record(offset: int) -> bytes:
    return Draft(TOPIC, b"%d" % offset, queue_offset=offset, physical_offset=offset * 1000).encode()


def test_slave_serves_while_the_master_is_gone(run: Run) -> None:
    got: Counter[int] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        got[int(message.body)] += 1

    async def main() -> None:
        pair = Pair()
        for server in (pair.name_server, pair.master, pair.slave):
            await server.start()
        config = ClientConfig(
            name_servers=f"127.0.0.1:{pair.name_server.port}",
            poll_name_server_interval_ms=200,
            persist_offsets_interval_ms=200,
        )
        consumer = AsyncPushConsumer("g", listener=listener, client=config, consume_from="first_offset")
        consumer.subscribe(TOPIC)
        async with consumer:
            pair.end = 10
            await until(lambda: len(got) == 10, "from the master")
            assert not pair.slave.pulls
            await pair.master.stop()
            pair.end = 20
            await until(lambda: len(got) == 20, "from the slave")
            # A slave keeps no offsets: none is sent along with a pull.
            assert not any(one.sys_flag & PullFlag.COMMIT_OFFSET for one in pair.slave.pulls)
            await until(lambda: pair.committed == 20, "the offset, which the slave takes for the master")
            await pair.master.start()
            before = len(pair.master.pulls)
            await until(lambda: len(pair.master.pulls) > before, "a pull at the master again")
            served = len(pair.slave.pulls)
            pair.end = 30
            await until(lambda: len(got) == 30, "from the master again")
            assert len(pair.slave.pulls) == served
            # A busy master sends readers away, and the slave keeps them as long as it says so.
            pair.suggested = 1
            pair.end = 40
            await until(
                lambda: len(got) == 40 and len(pair.slave.pulls) > served, "from the slave, as suggested"
            )
        assert got == Counter(range(40))
        await asyncio.sleep(2 * HOLD_S)  # held pulls end
        for server in (pair.master, pair.slave):
            await server.stop()
        await pair.name_server.close()

    run(main())
