"""A member of a DLedger group: the machine of `protocol.dledger`, a log on disk and a port.

Loop: hand all events to the state machine, send its requests and responses, make its writes durable.
A thread of its own writes to disk; all entries that arrive meanwhile share the next flush.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

from pyledger.clock import Clock, SystemClock
from pyledger.config.dledger import DLedgerConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.config.net import NetConfig
from pyledger.errors import ConfigError, MalformedBodyError, StoreError, StoreFullError
from pyledger.log_events import event, logger
from pyledger.net.deferred import Deferred
from pyledger.net.endpoint import Frame
from pyledger.net.event_limiter import Alarms
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.request_table import reject_unknown
from pyledger.net.remoting.server import RemotingServer
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    GetEntriesRequest,
    RequestOrResponse,
    Response,
)
from pyledger.protocol.dledger.node import DLedgerNode
from pyledger.protocol.dledger.ready import (
    Answered,
    Appended,
    Appends,
    Call,
    CallFailed,
    Event,
    Grown,
    Persist,
    Ready,
    Received,
    RoleChange,
)
from pyledger.protocol.dledger.response_codes import RequestCode, ResponseCode
from pyledger.servers.dledger.work_thread import WorkThread
from pyledger.store.dledger.memory_store import DLedgerMemoryStore
from pyledger.store.dledger.retention import clean, disk_is_full
from pyledger.store.dledger.store import DLedgerStore
from pyledger.wire.dledger.bodies import decode_response, encode_body, parse_peers
from pyledger.wire.dledger.codec import (
    OFFER,
    REQUEST_CODES,
    DLedgerCodec,
    append_responses,
    decode_request,
)
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from pyledger.wire.remoting.native_codec import AppendBatch, AppendDecoder
from pyledger.wire.remoting.request_bodies import too_large

log = logger("dledger")

HEADER_CODE = 200
MAINTENANCE_MS = 500
RETRY_MS = 1000
"""Pause before the term is saved again after the disk was full."""
INCARNATIONS = 1 << 53
"""Range of incarnation numbers: repeats are unlikely, and JSON readers keep each number exact."""
OFFERED_TO = {RequestCode.METADATA, RequestCode.PUSH}
"""Requests whose responses offer binary requests."""


class PendingRequest(NamedTuple):
    """A request without a response."""

    connection: Connection
    command: RemotingCommand


@dataclass(frozen=True, slots=True, eq=False)
class AppendRequests:
    """The appends of one entry each that arrived together on one connection."""

    connection: Connection
    opaques: list[int]

    def __len__(self) -> int:
        return len(self.opaques)

    def __iter__(self) -> Iterator[PendingRequest]:
        for opaque in self.opaques:
            yield PendingRequest(self.connection, RemotingCommand(RequestCode.APPEND, opaque=opaque))


class DLedgerServer:
    """Serves one member from `start` to `close`."""

    def __init__(
        self,
        group: str,
        self_id: str,
        peers: str,
        store_path: str,
        *,
        config: DLedgerConfig | None = None,
        store: DLedgerStoreConfig | None = None,
        net: NetConfig | None = None,
        listen: tuple[str, int] | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
        serve_appends: bool = True,
    ) -> None:
        """Prepare a member; `start` opens its log and listens.

        Args:
            group: Name of the group.
            self_id: Id of this member, one of `peers`.
            peers: `id-host:port;id-host:port`, all members.
            store_path: Parent of the node's folder, `dledger-<id>`.
            config: Settings of votes and replication.
            store: Settings of the log.
            net: Limits of connections.
            listen: Where to listen; None: the member's address in `peers`.
            random: Draws the pauses of elections.
            clock: Source of the time; None: the system clock.
            serve_appends: Accept entries of clients. False for the log of a broker, which appends its own.
        """
        self.peers = parse_peers(peers)
        if self_id not in self.peers:
            raise ConfigError(
                "id", f"{self_id!r} is not among the peers", f"they are {', '.join(self.peers)}"
            )
        self.group, self.self_id = group, self_id
        self.path = os.path.join(store_path, f"dledger-{self_id}")
        self.config, self.store_config = config or DLedgerConfig(), store or DLedgerStoreConfig()
        self.on_role: Callable[[RoleChange], None] | None = None
        self.on_committed: Callable[[int], None] | None = None
        self.ended: asyncio.Event | None = None
        host, _, port = self.peers[self_id].rpartition(":")
        host, number = listen or (host, int(port))
        self._serve_appends = serve_appends
        self._random, self._clock = random or Random(), clock or SystemClock()
        self._server = RemotingServer(
            self._handle,
            host=host,
            port=number,
            config=net,
            answer_batch=self._take_appends,
            decoder=AppendDecoder,
        )
        # A peer without a response in time is retried on the same connection.
        self._client = RemotingClient(config=replace(net or NetConfig(), close_socket_on_timeout=False))
        in_memory = self.store_config.store_type == "memory"
        self._store_class: Callable[[str, DLedgerStoreConfig], DLedgerStore | DLedgerMemoryStore]
        self._store_class = DLedgerMemoryStore if in_memory else DLedgerStore
        self._inbox: list[Event] = []
        self._responses: dict[Connection, list[bytes]] = {}
        self._append_responses = append_responses(group, self_id)
        self._planned: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._care: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._alarms, self._closing = Alarms(log), False
        self._disk: WorkThread
        self.store: DLedgerStore | DLedgerMemoryStore
        self.node: DLedgerNode

    @property
    def address(self) -> str:
        """`host:port` of this member in the group's list."""
        return self.peers[self.self_id]

    @property
    def file_store(self) -> DLedgerStore:
        """The log on disk.

        Raises:
            ConfigError: it is in memory.
        """
        if not isinstance(self.store, DLedgerStore):
            raise ConfigError("store_type", "memory keeps no files", "choose file")
        return self.store

    async def start(self) -> None:
        """Recover the log, listen and join the group.

        Raises:
            StoreError: the log cannot be opened.
            ListenError: the port cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        self._disk = WorkThread("dledger-disk")
        try:
            await self._disk.run(self._open_store)
        except BaseException:
            self._disk.stop()
            raise
        try:
            await self._take_part()
        except BaseException:
            await self.close()
            raise

    async def _take_part(self) -> None:
        self.node = DLedgerNode(
            group=self.group,
            self_id=self.self_id,
            peers=self.peers,
            storage=self.store,
            random=self._random,
            saved=self.store.saved,
            now_ms=self._now_ms(),
            incarnation=1 + secrets.randbelow(INCARNATIONS),
            config=self.config,
        )
        for notice in self.store.notices:
            event(log, logging.WARNING, "log recovered", what=notice)
        await self._server.start()
        self._maintain()
        self._pump()

    def _open_store(self) -> None:
        self.store = self._store_class(self.path, self.store_config)

    async def close(self) -> None:
        """Leave the group, flush, write the checkpoint. Idempotent."""
        if self._closing:
            return
        self._closing = True
        for handle in (self._planned, self._timer, self._care, self._retry):
            if handle is not None:
                handle.cancel()
        await self._server.close(grace_ms=0)
        await self._client.close()
        await self._disk.run(self.store.close)
        self._disk.stop()

    # --- requests and events

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Queue a request for the machine, which answers it."""
        pending, code = PendingRequest(connection, command), command.code
        try:
            if code not in REQUEST_CODES:
                return reject_unknown(connection, command)
            if problem := too_large(code, len(command.body)):
                raise MalformedBodyError("request", "", problem)
            request = decode_request(code, memoryview(command.body))
            if isinstance(request, AppendEntryRequest) and not self._serve_appends:
                return response_to(command, RequestOrResponse(code=ResponseCode.UNEXPECTED_ARGUMENT))
            self._take(Received(pending, request))
            if isinstance(request, GetEntriesRequest):
                self._pump()  # answer now, so that the limits of the connection count the response
        except MalformedBodyError as error:
            # A remoting error would let Java's callers wait for ever.
            connection.report(log, logging.WARNING, "request rejected", code=code, why=error)
            return response_to(command, RequestOrResponse(code=ResponseCode.UNEXPECTED_ARGUMENT))
        return None

    def grown(self) -> None:
        """Replicate entries that were appended to the log of this leader."""
        if not isinstance(self._inbox[-1] if self._inbox else None, Grown):
            self._take(Grown())

    def _take_appends(self, connection: Connection, frames: list[Frame], at: int) -> tuple[None, int]:
        """Add a batch of appends to the inbox. Those for another group or member are handled one by one."""
        batch = frames[at]
        assert isinstance(batch, AppendBatch)
        if not self._serve_appends or (batch.group, batch.remote_id) != (self.group, self.self_id):
            return None, 0
        self._take(Appends(AppendRequests(connection, batch.opaques), batch.bodies))
        return None, 1

    def _take(self, what: Event) -> None:
        """Queue an event. All events of one iteration of the loop are stepped together."""
        self._inbox.append(what)
        if self._planned is None and not self._closing:
            self._planned = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        if self._closing:
            return
        node, now_ms = self.node, self._now_ms()
        inbox, self._inbox = self._inbox, []
        if inbox:
            node.step_all(inbox, now_ms)
        else:
            node.tick(now_ms)
        while (ready := node.ready()) is not None:
            self._do(ready)
        self._write_responses()
        if node.failure is not None:
            self._give_up(node.failure)
        elif node.damaged:
            self._give_up("the log is damaged")
        self._arm(node.deadline_ms(), now_ms)

    def _arm(self, deadline_ms: int | None, now_ms: int) -> None:
        if self._timer is not None:
            if deadline_ms == self._armed_ms:
                return
            self._timer.cancel()
            self._timer = None
        self._armed_ms = deadline_ms
        if deadline_ms is not None:
            self._timer = self._loop.call_later(max(deadline_ms - now_ms, 1) / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._pump()

    # --- what the machine has ready

    def _do(self, ready: Ready) -> None:
        if ready.persist is not None:
            self._start_persist(ready.persist)
        for call in ready.calls:
            self._call(call)
        for token, response in ready.replies:
            self._respond(token, response)
        for one in ready.appended:
            self._respond_to_appends(one)
        for change in ready.role_changes:
            event(
                log,
                logging.INFO,
                "role changed",
                role=change.role.value,
                term=change.term,
                leader=change.leader_id,
            )
            if self.on_role is not None:
                self.on_role(change)
        if ready.committed_index is not None and self.on_committed is not None:
            self.on_committed(ready.committed_index)
        for alarm in ready.alarms:
            self._alarms.warn(alarm, self._now_ms())

    def _respond(self, token: object, response: Response) -> None:
        assert isinstance(token, PendingRequest)
        if not token.command.is_oneway:
            self._add_response(token.connection, encode_frame(response_to(token.command, response)))

    def _respond_to_appends(self, one: Appended) -> None:
        requests = one.tokens
        if isinstance(requests, AppendRequests):
            first = one.last_index + 1 - len(requests)
            frames = self._append_responses.encode(requests.opaques, first, one.positions, one.term)
            self._add_response(requests.connection, frames)
            return
        for token, response in self.node.append_responses(one):
            self._respond(token, response)

    def _add_response(self, connection: Connection, frames: bytes) -> None:
        self._responses.setdefault(connection, []).append(frames)

    def _write_responses(self) -> None:
        """Write all responses of one connection together."""
        responses, self._responses = self._responses, {}
        for connection, frames in responses.items():
            connection.write((b"".join(frames),))

    def _call(self, call: Call) -> None:
        address = self.peers[call.peer]
        command = self._codec(address).encode(call.request)
        # `max_pending_push_bytes` limits the bytes to be written.
        response = self._client.start(address, command, self.config.rpc_timeout_ms)
        response.add_done_callback(partial(self._called, call))

    def _codec(self, address: str) -> DLedgerCodec:
        """Return the codec of the connection to a peer; JSON without a connection."""
        connection = self._client.open_connection(address)
        return DLedgerCodec() if connection is None else DLedgerCodec.of(connection.data)

    def _called(self, call: Call, response: Deferred[RemotingCommand]) -> None:
        if response.exception() is None and self._codec(self.peers[call.peer]).learn(response.result()):
            try:
                body = memoryview(response.result().body)
                self._take(Answered(call.call_id, decode_response(call.request, body)))
                return
            except MalformedBodyError as error:
                event(log, logging.WARNING, "answer not understood", peer=call.peer, why=str(error))
        self._take(CallFailed(call.call_id))

    def _start_persist(self, persist: Persist) -> None:
        self._disk.start(partial(self._persist, persist), partial(self._persisted, persist))

    def _persist(self, persist: Persist) -> None:
        if persist.flush:
            self.store.flush()
        if persist.term_state is not None:
            self.store.save_term_state(persist.term_state)

    def _persisted(self, persist: Persist, error: Exception | None) -> None:
        if self._closing:
            return
        if error is None:
            self.node.persisted(persist, self._now_ms())
            self._pump()
        elif isinstance(error, StoreFullError):
            # The term file is unchanged, and no message depends on the new one yet. It is written as a whole
            # each time, so this retries no failed flush.
            self._alarms.warn(str(error), self._now_ms())
            self._retry = self._loop.call_later(RETRY_MS / 1000, self._start_persist, persist)
        else:
            self._give_up(str(error))

    def _give_up(self, why: str) -> None:
        """Leave the group: the state of the disk is unknown."""
        assert self.ended is not None
        if not self.ended.is_set():
            event(log, logging.ERROR, "member leaves its group", why=why)
            self.node.fail(why)
            self.ended.set()

    # --- maintenance

    def _maintain(self) -> None:
        self._care = self._loop.call_later(MAINTENANCE_MS / 1000, self._maintain)
        if isinstance(store := self.store, DLedgerStore):
            try:
                store.disk_full = disk_is_full(store)
                clean(store, self._clock)
            except (StoreError, OSError) as error:
                self._alarms.warn(str(error), self._now_ms())
            now_ms = self._clock.monotonic_ms()
            if store.needs_care(now_ms):
                self._disk.start(partial(store.take_care, now_ms), self._tended)

    def _tended(self, error: Exception | None) -> None:
        if isinstance(error, StoreFullError):
            self._alarms.warn(str(error), self._now_ms())  # the old checkpoint stays valid
        elif error is not None:
            self._give_up(str(error))


def response_to(command: RemotingCommand, response: RequestOrResponse) -> RemotingCommand:
    """The response frame; the code of its remoting header is always that of success."""
    offer = OFFER if command.code in OFFERED_TO else None
    return command.response(HEADER_CODE, body=encode_body(response), ext_fields=offer)
