"""Name server and brokers that answer as a test says, over real sockets."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import BrokerRoute, QueueRoute, TopicRoute
from pyledger.model.topic import Permission
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.record.message_id import encode_message_id
from pyledger.wire.remoting.bodies.route import encode_route
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader

Script = Callable[[RemotingCommand], RemotingCommand | None]
READ_WRITE = Permission.READ | Permission.WRITE


class ScriptedBroker:
    """A broker that notes every request; sends succeed unless a script says otherwise."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[RemotingCommand] = []
        self.scripts: dict[int, deque[Script]] = defaultdict(deque)
        self.connections: list[Connection] = []
        self.server: RemotingServer | None = None
        self.arrived = asyncio.Event()

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"127.0.0.1:{self.server.port}"

    def of(self, code: int) -> list[RemotingCommand]:
        """The requests of one code."""
        return [one for one in self.requests if one.code == code]

    def refuse(self, code: int, response_code: int, times: int = 1) -> None:
        """Answer the next requests of a code with a response code."""
        self.scripts[code].extend(
            [lambda request: request.response(response_code, "as the test says")] * times
        )

    def ignore(self, code: int, times: int = 1) -> None:
        """Do not answer the next requests of a code."""
        self.scripts[code].extend([lambda _request: None] * times)

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.connections.append(connection)
        request.body = bytes(request.body)
        self.requests.append(request)
        self.arrived.set()
        if self.scripts[request.code]:
            return self.scripts[request.code].popleft()(request)
        if request.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}:
            return self.stored(request)
        return request.response()

    def stored(self, request: RemotingCommand, code: int = 0) -> RemotingCommand:
        """What a broker answers that has stored a message."""
        header = request.header(SendMessageRequestHeader)
        header = SendMessageResponseHeader(
            msg_id=encode_message_id("127.0.0.1", 10911, len(self.requests)),
            queue_id=header.queue_id,
            queue_offset=len(self.requests),
        )
        return request.response(code, header=header)


class Cluster:
    """A name server that knows some topics on scripted brokers."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = brokers
        self.server: RemotingServer | None = None
        self.topics: dict[str, int] = {"Orders": 2}
        self.questions: list[str] = []

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"127.0.0.1:{self.server.port}"

    def route(self, queue_count: int) -> TopicRoute:
        return TopicRoute(
            queues=tuple(QueueRoute(one.name, queue_count, queue_count, READ_WRITE) for one in self.brokers),
            brokers=tuple(BrokerRoute("C", one.name, {0: one.address}) for one in self.brokers),
        )

    def handle(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        self.questions.append(topic)
        if topic not in self.topics:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        return request.response(body=encode_route(self.route(self.topics[topic]), standard=True))


@asynccontextmanager
async def cluster(*names: str) -> AsyncIterator[Cluster]:
    """A name server and brokers for the length of a block."""
    made = Cluster([ScriptedBroker(name) for name in names or ("broker-a",)])
    for one in (made, *made.brokers):
        one.server = RemotingServer(one.handle)
        await one.server.start()
    try:
        yield made
    finally:
        for one in (made, *made.brokers):
            assert one.server is not None
            await one.server.close()
