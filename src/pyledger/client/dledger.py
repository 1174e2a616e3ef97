"""DLedgerClient: appends to a DLedger group and reads it, of Java's nodes or ours.

The leader is asked for when it is not known, and looked for again when a member refuses or does not answer.
An append that was surely not taken is tried again within its time; one whose outcome is not known never is,
as nothing tells two equal entries apart.

Source: DLedger DLedgerClient.java.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Self

from pyledger.config.net import NetConfig
from pyledger.errors import (
    DLedgerRejectedError,
    MalformedBodyError,
    NoLeaderError,
    OutcomeUnknownError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    Entry,
    GetEntriesRequest,
    HeartBeatRequest,
    LeadershipTransferRequest,
    MetadataRequest,
    MetadataResponse,
    ReadIndexRequest,
    Request,
    Response,
)
from pyledger.protocol.dledger.response_codes import ResponseCode
from pyledger.wire.dledger.bodies import CODES, decode_response, encode_body, parse_peers
from pyledger.wire.dledger.native_bodies import OFFER, append_head
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.native_codec import AppendCall, AppendHead

METADATA_TIMEOUT_MS = 1500
TRANSFER_TIMEOUT_MS = 10_000
PAUSE_MS = 20
NOT_TAKEN = {
    ResponseCode.NOT_LEADER,
    ResponseCode.LEADER_TRANSFERRING,
    ResponseCode.LEADER_PENDING_FULL,
    ResponseCode.LEADER_NOT_READY,
}
"""Refusals after which another member, or the same a little later, may take the append."""
UNKNOWN_OUTCOME = {
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT,
    ResponseCode.TERM_CHANGED,
    ResponseCode.EXPIRED_TERM,
    ResponseCode.TIMEOUT,
    ResponseCode.INTERNAL_ERROR,
}


class DLedgerClient:
    """Asks the members of one group. Use it with `async with`, or close it."""

    def __init__(
        self, group: str, peers: str, *, timeout_ms: int = 5000, net: NetConfig | None = None
    ) -> None:
        """A client that connects when it is first used.

        Args:
            group: Name of the group.
            peers: `id-host:port;id-host:port`; some members are enough.
            timeout_ms: For a whole call, looking for the leader included.
            net: Limits of connections.
        """
        self.group, self.timeout_ms = group, timeout_ms
        self.peers = parse_peers(peers)
        self.leader: str | None = None
        self._client = RemotingClient(config=net)
        self._append_heads: dict[str, AppendHead] = {}
        """Of members that take appends as they are."""
        self._looking: asyncio.Task[str] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._looking is not None:
            self._looking.cancel()
        await self._client.close()

    # --- what one can ask

    async def append(self, body: bytes) -> AppendEntryResponse:
        """Append an entry; returns where it stands once a majority has it.

        Raises:
            NoLeaderError: nobody leads; nothing was appended.
            DLedgerRejectedError: the leader refused it; nothing was appended.
            OutcomeUnknownError: it may be in the log, or come into it.
        """
        response = await self._append_raw((body,))
        if response is not None:
            return response
        return await self._append(AppendEntryRequest(group=self.group, body=body))

    async def append_many(self, bodies: Sequence[bytes]) -> AppendEntryResponse:
        """Append entries with one request; the answer is that of the last. Only nodes of ours take it."""
        response = await self._append_raw(bodies)
        if response is not None:
            return response
        return await self._append(AppendEntryRequest(group=self.group, batch_msgs=tuple(bodies)))

    async def get(self, index: int) -> Entry | None:
        """A committed entry; None where there is none."""
        request = GetEntriesRequest(group=self.group, begin_index=index)
        response = await self._ask_leader(request, append=False)
        if response.code in (
            ResponseCode.INDEX_OUT_OF_RANGE,
            ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
        ):
            return None
        self._refuse(response)
        found: tuple[Entry, ...] = response.entries
        return found[0] if found else None

    async def read_index(self) -> int:
        """How far one must read to see every append that was acknowledged before; only of nodes of ours."""
        response = await self._ask_leader(ReadIndexRequest(group=self.group), append=False)
        self._refuse(response)
        return int(response.index)

    async def transfer(self, to: str) -> int:
        """Make a member the leader, unless it is; returns the term in which it leads."""
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
        self._refuse(response)
        return int(response.term)

    async def metadata(self, member: str) -> MetadataResponse:
        """What one member says of the group."""
        request = MetadataRequest(group=self.group, remote_id=member)
        answer: MetadataResponse = await self._call(member, request, METADATA_TIMEOUT_MS)
        return answer

    async def term(self, member: str, timeout_ms: int = METADATA_TIMEOUT_MS) -> int:
        """The term that a member is in: what it says when it refuses a heart beat of a term before all.

        Raises:
            DLedgerRejectedError: it is in another group.
        """
        other = next((peer for peer in self.peers if peer != member), member)
        request = HeartBeatRequest(group=self.group, remote_id=member, leader_id=other, term=-2)
        response = await self._call(member, request, timeout_ms)
        if response.code in (ResponseCode.UNKNOWN_GROUP, ResponseCode.UNKNOWN_MEMBER):
            self._refuse(response, member)
        return int(response.term)

    # --- asking

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.timeout_ms / 1000

    async def _append_raw(self, bodies: Sequence[bytes]) -> AppendEntryResponse | None:
        """Append bodies as they are, where the leader takes that; None: nothing was appended so far."""
        leader = self.leader or ""
        head = self._append_heads.get(leader)
        if (
            head is None
            or not bodies
            or (connection := self._client.open_connection(self.peers[leader])) is None
        ):
            return None
        if not connection.has_room:
            await self._wait_for_room(connection)
            if not connection.takes_calls:
                return None
        endpoint = connection.endpoint
        future: asyncio.Future[AppendEntryResponse | RemotingCommand | RemotingError]
        future, opaque = endpoint.loop.create_future(), endpoint.next_opaque()
        connection.start_encoded(AppendCall(future), opaque, (head.encode(opaque, bodies),), self.timeout_ms)
        outcome = await future
        if isinstance(outcome, AppendEntryResponse):
            return outcome
        if isinstance(outcome, RemotingError):
            self._forget(leader)
            raise OutcomeUnknownError(leader, str(outcome)) from outcome
        if outcome.code not in (0, ResponseCode.SUCCESS):
            self._append_heads.pop(leader, None)  # another program answers there now, and knows no such code
            return None
        try:
            response = decode_response(AppendEntryRequest(), memoryview(outcome.body))
        except MalformedBodyError as error:
            raise OutcomeUnknownError(leader, str(error)) from error
        assert isinstance(response, AppendEntryResponse)
        if response.code in NOT_TAKEN:
            return None
        self._check_append(response)
        return response

    async def _wait_for_room(self, connection: Connection) -> None:
        """Wait until the leader has read more of what was sent before."""
        try:
            await connection.room(self.timeout_ms, self.timeout_ms)
        except RemotingTimeoutError as error:
            raise NoLeaderError(self.group, self.timeout_ms) from error

    async def _append(self, request: AppendEntryRequest) -> AppendEntryResponse:
        response: AppendEntryResponse = await self._ask_leader(request, append=True)
        self._check_append(response)
        return response

    def _check_append(self, response: AppendEntryResponse) -> None:
        if response.code in UNKNOWN_OUTCOME:
            raise OutcomeUnknownError(self.leader or "the leader", f"answered {response.code}")
        self._refuse(response)

    async def _ask_leader(self, request: Any, *, append: bool) -> Any:
        """The leader's answer; another member is asked as long as that cannot do a thing twice."""
        deadline = self._deadline()
        loop = asyncio.get_running_loop()
        while True:
            leader = self.leader or await self._find_leader(deadline)
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            addressed = type(request)(**{**members_of(request), "remote_id": leader})
            try:
                response = await self._call(leader, addressed, left_ms)
            except (RemotingConnectError, RemotingTooMuchRequestError):
                self._forget(leader)
            except (RemotingError, MalformedBodyError) as error:
                self._forget(leader)
                if append:
                    raise OutcomeUnknownError(leader, str(error)) from error
            else:
                if response.code not in NOT_TAKEN or loop.time() > deadline:
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
        """Ask until a member that answers names a leader; callers share one search."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look(deadline))
        return await asyncio.shield(self._looking)

    async def _look(self, deadline: float) -> str:
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
        """Connect to a leader that another member named, and learn what it takes."""
        with contextlib.suppress(RemotingError, MalformedBodyError):
            await self.metadata(leader)

    async def _call(self, member: str, request: Request, timeout_ms: int) -> Any:
        command = RemotingCommand.request(CODES[type(request)], body=encode_body(request))
        answer = await self._client.call(self.peers[member], command, timeout_ms)
        if member not in self._append_heads and answer.ext_fields.items() >= OFFER.items():
            self._append_heads[member] = append_head(self.group, member)
        return decode_response(request, memoryview(answer.body))

    def _refuse(self, response: Response, member: str | None = None) -> None:
        if response.code != ResponseCode.SUCCESS:
            known = response.code in ResponseCode._value2member_map_
            name = ResponseCode(response.code).name if known else ""
            raise DLedgerRejectedError(member or self.leader or "the leader", response.code, name)


def members_of(request: Request) -> dict[str, Any]:
    """The members of a message, by name."""
    return {name: getattr(request, name) for name in type(request).__dataclass_fields__}
