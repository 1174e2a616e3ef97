"""DLedgerClient: appends to a DLedger group and reads it, of Java's nodes or ours.

If the leader is not known, the members are queried for it, and again after a rejection or a timeout.
An append that was certainly not stored is retried until its timeout; one whose outcome is not known is never
retried, because two equal entries cannot be distinguished.

Source: DLedger DLedgerClient.java.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, Self

from pyledger.config.net import NetConfig
from pyledger.errors import (
    DLedgerRejectedError,
    MalformedBodyError,
    NoLeaderError,
    OutcomeUnknownError,
    RemotingConnectError,
    RemotingError,
    RemotingTooMuchRequestError,
)
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    Entry,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    LeadershipTransferRequest,
    MetadataRequest,
    MetadataResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    Request,
    Response,
)
from pyledger.protocol.dledger.response_codes import ResponseCode
from pyledger.wire.dledger.bodies import decode_response, parse_peers
from pyledger.wire.dledger.codec import DLedgerCodec, encode_request
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.native_codec import AppendFuture

METADATA_TIMEOUT_MS = 1500
TRANSFER_TIMEOUT_MS = 10_000
PAUSE_MS = 20
RETRYABLE = {
    ResponseCode.NOT_LEADER,
    ResponseCode.LEADER_TRANSFERRING,
    ResponseCode.LEADER_PENDING_FULL,
    ResponseCode.LEADER_NOT_READY,
}
"""Rejections after which another member, or the same one a little later, may accept the append."""
UNKNOWN_OUTCOME = {
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT,
    ResponseCode.TERM_CHANGED,
    ResponseCode.EXPIRED_TERM,
    ResponseCode.TIMEOUT,
    ResponseCode.INTERNAL_ERROR,
}


class DLedgerClient:
    """Sends requests to the members of one group. Use it with `async with`, or close it."""

    def __init__(
        self, group: str, peers: str, *, timeout_ms: int = 5000, net: NetConfig | None = None
    ) -> None:
        """A client that connects when it is first used.

        Args:
            group: Name of the group.
            peers: `id-host:port;id-host:port`; some members are enough.
            timeout_ms: Limit of a whole call, including the search for the leader.
            net: Limits of connections.
        """
        self.group, self.timeout_ms = group, timeout_ms
        self.peers = parse_peers(peers)
        self.leader: str | None = None
        self._client = RemotingClient(config=net)
        self._search: asyncio.Task[str] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._search is not None:
            self._search.cancel()
        await self._client.close()

    # --- calls

    async def append(self, body: bytes) -> AppendEntryResponse:
        """Append an entry; return its index once a majority has it.

        Raises:
            NoLeaderError: the group has no leader; nothing was appended.
            DLedgerRejectedError: the leader rejected it; nothing was appended.
            OutcomeUnknownError: it may be in the log, or be added to it later.
        """
        return await self.append_many((body,))

    async def append_many(self, bodies: Sequence[bytes]) -> AppendEntryResponse:
        """Append entries with one request; return the response for the last. Java's nodes reject it."""
        response = await self._call_leader(partial(self._send_append, bodies), append=True)
        assert isinstance(response, AppendEntryResponse)
        if response.code in UNKNOWN_OUTCOME:
            raise OutcomeUnknownError(self.leader or "the leader", f"answered {response.code}")
        self._check(response)
        return response

    async def get(self, index: int) -> Entry | None:
        """Return the committed entry at an index, or None."""
        request = GetEntriesRequest(group=self.group, begin_index=index)
        response = await self._call_leader(partial(self._send, request), append=False)
        assert isinstance(response, GetEntriesResponse)
        if response.code in (
            ResponseCode.INDEX_OUT_OF_RANGE,
            ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
        ):
            return None
        self._check(response)
        return response.entries[0] if response.entries else None

    async def read_index(self) -> int:
        """Return the index up to which every acknowledged append is visible; Java's nodes do not serve it."""
        request = ReadIndexRequest(group=self.group)
        response = await self._call_leader(partial(self._send, request), append=False)
        assert isinstance(response, ReadIndexResponse)
        self._check(response)
        return response.index

    async def transfer(self, to: str) -> int:
        """Make a member the leader, unless it is already; return the term in which it leads."""
        leader = await self._find_leader(self._deadline())
        if to == leader:
            return await self.term(leader, self.timeout_ms)
        request = LeadershipTransferRequest(
            group=self.group,
            remote_id=leader,
            transfer_id=leader,
            transferee_id=to,
            term=await self.term(leader, self.timeout_ms),
        )
        response = await self._call(leader, request, max(self.timeout_ms, TRANSFER_TIMEOUT_MS))
        self.leader = None
        self._check(response)
        return int(response.term)

    async def metadata(self, member: str) -> MetadataResponse:
        """Return the peers and the leader as one member knows them."""
        request = MetadataRequest(group=self.group, remote_id=member)
        answer: MetadataResponse = await self._call(member, request, METADATA_TIMEOUT_MS)
        return answer

    async def term(self, member: str, timeout_ms: int = METADATA_TIMEOUT_MS) -> int:
        """Return the term of a member: its rejection of a heartbeat with a negative term contains it.

        Raises:
            DLedgerRejectedError: it is in another group.
        """
        other = next((peer for peer in self.peers if peer != member), member)
        request = HeartBeatRequest(group=self.group, remote_id=member, leader_id=other, term=-2)
        response = await self._call(member, request, timeout_ms)
        if response.code in (ResponseCode.UNKNOWN_GROUP, ResponseCode.UNKNOWN_MEMBER):
            self._check(response, member)
        return int(response.term)

    # --- requests

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.timeout_ms / 1000

    async def _send(self, request: Request, leader: str, timeout_ms: int) -> Response:
        """Return the response of a leader to a request that has no address yet."""
        response: Response = await self._call(leader, replace(request, remote_id=leader), timeout_ms)
        return response

    async def _send_append(self, bodies: Sequence[bytes], leader: str, timeout_ms: int) -> Response:
        """Return the response of a leader to a request to append these bodies.

        Raises:
            RemotingConnectError: nothing was sent, or a program that is not a node rejected it.
            RemotingError: there was no response; the bodies may have been appended.
            MalformedBodyError: the response cannot be parsed; the bodies may have been appended.
        """
        connection = await self._connection(leader, timeout_ms)
        endpoint, codec = connection.endpoint, DLedgerCodec.of(connection.data)
        future: asyncio.Future[AppendEntryResponse | RemotingCommand]
        future, opaque = endpoint.loop.create_future(), endpoint.next_opaque()
        is_binary = codec.binary
        frame = codec.encode_append(self.group, leader, opaque, bodies)
        connection.start(AppendFuture(future), opaque, (frame,), timeout_ms)
        outcome = await future
        if isinstance(outcome, AppendEntryResponse):
            return outcome
        if not codec.learn(outcome) and is_binary:
            raise RemotingConnectError(self.peers[leader], f"it answered {outcome.code}")
        return decode_response(AppendEntryRequest(), memoryview(outcome.body))

    async def _connection(self, leader: str, timeout_ms: int) -> Connection:
        """Return a connection to the leader with capacity for one more request.

        Raises:
            RemotingConnectError: none is available in time.
        """
        address = self.peers[leader]
        connection = self._client.open_connection(address)
        if connection is None:
            await self._greet(leader)
            connection = self._client.open_connection(address)
        if connection is not None and not connection.writable:
            with contextlib.suppress(RemotingError):
                await connection.wait_writable(timeout_ms, timeout_ms)
        if connection is None or not connection.takes_calls:
            raise RemotingConnectError(address, "no request can be sent now")
        return connection

    async def _call_leader(
        self, send: Callable[[str, int], Awaitable[Response]], *, append: bool
    ) -> Response:
        """Return the leader's response to what `send` sends, given the leader and the time left (ms).

        A call is repeated only if that cannot append twice.
        """
        deadline = self._deadline()
        loop = asyncio.get_running_loop()
        while True:
            leader = self.leader or await self._find_leader(deadline)
            left_ms = max(1, ceil((deadline - loop.time()) * 1000))
            try:
                response = await send(leader, left_ms)
            except (RemotingConnectError, RemotingTooMuchRequestError):
                self._forget(leader)
            except (RemotingError, MalformedBodyError) as error:
                self._forget(leader)
                if append:
                    raise OutcomeUnknownError(leader, str(error)) from error
            else:
                if response.code not in RETRYABLE or loop.time() > deadline:
                    return response
                if response.code == ResponseCode.NOT_LEADER:
                    self._forget(leader)
                await asyncio.sleep(PAUSE_MS / 1000)
            if loop.time() > deadline:
                raise NoLeaderError(self.group, self.timeout_ms)

    def _forget(self, leader: str) -> None:
        if self.leader == leader:
            self.leader = None

    async def _find_leader(self, deadline: float) -> str:
        """Query the members until one names a leader; concurrent callers share one search."""
        if self._search is None or self._search.done():
            self._search = asyncio.ensure_future(self._search_leader(deadline))
        return await asyncio.shield(self._search)

    async def _search_leader(self, deadline: float) -> str:
        loop = asyncio.get_running_loop()
        while True:
            for member in tuple(self.peers):
                try:
                    answer = await self.metadata(member)
                except (RemotingError, MalformedBodyError):
                    continue
                known = dict(answer.peers)
                if answer.leader_id is not None and answer.leader_id in {**known, **self.peers}:
                    self.peers = {**known, **self.peers}
                    if answer.leader_id != member:
                        await self._greet(answer.leader_id)
                    self.leader = answer.leader_id
                    return answer.leader_id
            if loop.time() > deadline:
                raise NoLeaderError(self.group, self.timeout_ms)
            await asyncio.sleep(PAUSE_MS / 1000)

    async def _greet(self, leader: str) -> None:
        """Connect to a leader that another member named, and learn which encodings it accepts."""
        with contextlib.suppress(RemotingError, MalformedBodyError):
            await self.metadata(leader)

    async def _call(self, member: str, request: Request, timeout_ms: int) -> Any:
        address = self.peers[member]
        response = await self._client.call(address, encode_request(request), timeout_ms)
        if (connection := self._client.open_connection(address)) is not None:
            DLedgerCodec.of(connection.data).learn(response)
        return decode_response(request, memoryview(response.body))

    def _check(self, response: Response, member: str | None = None) -> None:
        if response.code != ResponseCode.SUCCESS:
            known = response.code in ResponseCode._value2member_map_
            name = ResponseCode(response.code).name if known else ""
            raise DLedgerRejectedError(member or self.leader or "the leader", response.code, name)
