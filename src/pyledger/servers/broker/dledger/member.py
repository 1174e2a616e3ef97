"""Connects a broker in one role to the member of a DLedger group that keeps its log.

A new leader becomes a master only when all earlier entries are committed and have their queue units. Raft
commits them together with an entry of the new term, so the leader first puts a message into a system topic:
Java's brokers could not read an entry without a message.

Source: RocketMQ store/.../dledger/DLedgerCommitLog.java.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from pyledger.clock import Clock
from pyledger.config.broker import BrokerConfig
from pyledger.config.ha import HaConfig
from pyledger.config.keywords import StoreSettings
from pyledger.config.net import TlsConfig
from pyledger.errors import StoreClosedError
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.net.remoting.client import RemotingClient
from pyledger.servers.broker.dledger.restored_topics import restore_topics
from pyledger.servers.broker.ha.dledger_roles import GroupFollower, GroupLeader
from pyledger.servers.broker.ha.replication import ReplicationListener
from pyledger.servers.broker.tables import BrokerTables
from pyledger.servers.dledger.server import DLedgerServer
from pyledger.store.messages.dledger_message_store import MemberStore
from pyledger.store.messages.store_engine import StoreEngine

if TYPE_CHECKING:
    from pyledger.servers.broker.context import BrokerContext


class Membership:
    """The member as a broker in one role sees it."""

    def __init__(
        self, member: DLedgerServer, led_term: int | None, before: "Membership | None" = None
    ) -> None:
        """Open no store yet.

        Args:
            member: The member.
            led_term: The term in which it is the leader; None: it is not.
            before: The membership in the broker's previous role.
        """
        self._member = member
        self.led_term = led_term
        self._tables_where = -1 if before is None else before.tables_where
        self._led_where = -1
        self._follower: GroupFollower | None = None
        self.store: MemberStore | None = None
        """The open store; it is notified of commits."""

    @property
    def leads(self) -> bool:
        """Whether the member is still the leader of that term."""
        state = self._member.node.state
        return state.is_leader and state.term == self.led_term

    def open(self, path: str, *, clock: Clock, **settings: Unpack[StoreSettings]) -> MemberStore:
        """Open the store on the member's log."""
        leads = self.led_term is not None
        return MemberStore.open_on(path, self._member.file_store, leads=leads, clock=clock, **settings)

    async def settle(self, store: StoreEngine) -> None:
        """Let the store follow the group; a leader returns when it has all that the group has.

        Raises:
            StoreClosedError: the member is no longer the leader.
        """
        assert isinstance(store, MemberStore)
        try:
            self.store = store
            self.committed()
            if self.led_term is not None:
                await self._commit_all(store, self.led_term)
        except BaseException:
            self.store = None
            await asyncio.to_thread(store.close)
            raise

    async def _commit_all(self, store: MemberStore, term: int) -> None:
        if not self.leads:
            raise StoreClosedError(store.path)
        self._member.file_store.log.term = term
        store.grown = self._member.grown
        text = f"{self._member.self_id} leads {self._member.group} in term {term}"
        place = store.append(Message(names.SELF_TEST_TOPIC, text.encode()))
        done = False
        while not done:
            # The wait ends when the store steps down at the end of the leadership.
            wait = store.until_durable(place.physical_offset + place.size_bytes)
            done = wait is None or await wait
        await asyncio.to_thread(store.dispatch)

    def committed(self) -> None:
        """Notify the store that the group has committed more."""
        if self.store is not None:
            self.store.commit(self._member.file_store.committed_position)

    def stand_down(self) -> None:
        """End the leadership: reject puts from now on, and those that wait."""
        if self.led_term is not None and self.store is not None:
            self.store.stand_down()

    @property
    def tables_where(self) -> int:
        """Physical offset (bytes): the topics of all messages below it are in this broker's table."""
        copied_where = -1 if self._follower is None else self._follower.sync.complete_where
        return max(self._tables_where, self._led_where, copied_where)

    def restore_topics(self, context: "BrokerContext") -> None:
        """As a new leader: create the topics whose messages were replicated before the table was copied."""
        if self.led_term is None:
            return
        # Repeated when the port was taken and another broker is started instead.
        restore_topics(context, self._tables_where)
        self._led_where = context.store.confirmed_where

    def takes_appends(self) -> bool:
        """Whether the group takes entries of this member now."""
        return self.leads and self._member.node.takes_appends

    def replication(
        self,
        _config: BrokerConfig,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        _now_ms: Callable[[], int],
        listener: ReplicationListener,
        _tls: TlsConfig | None = None,
    ) -> GroupLeader | GroupFollower:
        """Create the side of the role; takes the arguments of `replication_of`."""
        if self.led_term is not None:
            return GroupLeader(store, self.takes_appends)
        self._follower = GroupFollower(
            ha, store, tables, client, listener.master_changed, listener.find_master, self._term
        )
        return self._follower

    def _term(self) -> int:
        return self._member.node.state.term
