"""Bookies in memory behind real sockets: the pure rules, with what a test wants to go wrong."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
from pyledger.errors import LedgerFrameError
from pyledger.metadata.cluster import Cluster, locate
from pyledger.protocol.bookkeeper.bookie import BookieRules
from pyledger.protocol.bookkeeper.messages import (
    BookieInfoRequest,
    BookieInfoResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from pyledger.simulator.bookkeeper.bookie import EntriesInMemory
from pyledger.wire.bookkeeper import version2, version3
from pyledger.wire.bookkeeper.bookies import Endpoint, Registration

LENGTH_BYTES = 4
Twist = Callable[[Request, Response], Response | None]
"""What is answered instead; None: nothing."""


class ModelBookie:
    """One bookie.

    Attributes:
        twist: Changes answers.
        seen: Every request.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules = BookieRules(EntriesInMemory())
        self.twist: Twist | None = None
        self.seen: list[Request] = []
        self._grown = asyncio.Condition()
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self.port

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """As if it were killed."""
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections.add(writer)
        old = False
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
                frame = memoryview(await reader.readexactly(size))
                try:
                    request = version2.decode_request(frame) if old else version3.decode_request(frame)
                except LedgerFrameError:
                    old, request = True, version2.decode_request(frame)
                self.seen.append(request)
                answer = asyncio.get_running_loop().create_task(self._answer(request, writer, old))
                self._tasks.add(answer)
                answer.add_done_callback(self._tasks.discard)
        writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter, old: bool) -> None:
        if isinstance(request, BookieInfoRequest):
            response: Response | None = BookieInfoResponse(
                status=Status.EOK, txn_id=request.txn_id, total_disk_capacity=1000, free_disk_space=400
            )
        elif isinstance(request, ForceLedgerRequest):
            # Whatever is in memory counts as on disk here; what is to be synced is a shell's matter.
            response = ForceLedgerResponse(
                status=Status.EOK, txn_id=request.txn_id, ledger_id=request.ledger_id
            )
        else:
            response = self.rules.handle(request).response
        if isinstance(request, ReadRequest) and request.piggyback and isinstance(response, ReadResponse):
            response = await self._wait(request, response)
        async with self._grown:
            self._grown.notify_all()
        if self.twist is not None and response is not None:
            response = self.twist(request, response)
        if response is not None:
            body = version2.encode_response(response) if old else version3.encode_response(response)
            writer.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)

    async def _wait(self, request: ReadRequest, response: ReadResponse) -> ReadResponse:
        """A long poll; its time is left to the client's own limit."""
        async with self._grown:
            while response.status is Status.EOK and (response.max_lac or -1) <= (request.previous_lac or -1):
                await self._grown.wait()
                found = self.rules.handle(request).response
                assert isinstance(found, ReadResponse)
                response = found
        return response


class Bench:
    """A cluster in one process."""

    def __init__(self, address: str, cluster: Cluster, bookies: dict[str, ModelBookie]) -> None:
        self.address, self.cluster, self.bookies = address, cluster, bookies

    @contextlib.asynccontextmanager
    async def client(self, **settings: int) -> AsyncIterator[AsyncLedgerClient]:
        patient = {"add_timeout_ms": 60_000, "read_timeout_ms": 60_000, "speculative_read_timeout_ms": 0}
        config = BookkeeperConfig(**{**patient, **settings})
        async with AsyncLedgerClient(self.address, config=config) as client:
            yield client


@contextlib.asynccontextmanager
async def bench(folder: Path, bookies: int = 4) -> AsyncIterator[Bench]:
    """Bookies `b0` … with their metadata in a file."""
    address = f"sqlite:{folder}/metadata"
    async with locate(address) as cluster:
        await cluster.format()
        made = {}
        for at in range(bookies):
            bookie = made[f"b{at}"] = ModelBookie(f"b{at}")
            endpoint = Endpoint("bookie", await bookie.start(), "127.0.0.1")
            await cluster.bookies.register(bookie.name, Registration((endpoint,)))
        try:
            yield Bench(address, cluster, made)
        finally:
            for bookie in made.values():
                await bookie.stop()
