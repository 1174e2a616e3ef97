"""What a broker has of the member of a DLedger group that keeps its log, for as long as it has one role.

A new leader is a master only when all that the group had is committed and has its queue units: it first puts
a message into a topic of the system, as older entries are committed with one of its own term, and entries
without a message could not be read by Java's brokers.

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
    """What a broker has of its member, for as long as it has one role."""

    def __init__(
        self, member: DLedgerServer, led_term: int | None, before: "Membership | None" = None
    ) -> None:
        """Take the member, and the term that it leads; None: it does not.

        Args:
            member: The member.
            led_term: The term that it leads; None: it does not.
            before: What the broker had before it changed its role.
        """
        self._member = member
        self.led_term = led_term
        self._tables_where = -1 if before is None else before.tables_where
        self._led_where = -1
        self._follower: GroupFollower | None = None
        self.store: MemberStore | None = None
        """Open, and told what is committed."""

    @property
    def leads(self) -> bool:
        """Whether the member still leads in that term."""
        state = self._member.node.state
        return state.is_leader and state.term == self.led_term

    def open(self, path: str, *, clock: Clock, **settings: Unpack[StoreSettings]) -> MemberStore:
        """Open the store on the member's log."""
        leads = self.led_term is not None
        return MemberStore.open_on(path, self._member.file_store, leads=leads, clock=clock, **settings)

    async def settle(self, store: StoreEngine) -> None:
        """Let the store follow the group; return, as leader, when it has all that the group has.

        Raises:
            StoreClosedError: the member leads no more.
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
            # When the leadership ends, the store steps down, which ends the wait.
            wait = store.until_durable(place.physical_offset + place.size_bytes)
            done = wait is None or await wait
        await asyncio.to_thread(store.dispatch)

    def committed(self) -> None:
        """The group has committed more."""
        if self.store is not None:
            self.store.commit(self._member.file_store.committed_position)

    def stand_down(self) -> None:
        """The member leads no more: from now on nothing is put, and who waits is refused."""
        if self.led_term is not None and self.store is not None:
            self.store.stand_down()

    @property
    def tables_where(self) -> int:
        """Physical offset (bytes): topics of all that stands before it are in this broker's table."""
        copied_where = -1 if self._follower is None else self._follower.sync.complete_where
        return max(self._tables_where, self._led_where, copied_where)

    def restore_topics(self, context: "BrokerContext") -> None:
        """As a new leader: have the topics whose messages have come, but not the table that knows them."""
        if self.led_term is None:
            return
        # The same again where the broker's port was taken and another one starts in its place.
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
        told: ReplicationListener,
        _tls: TlsConfig | None = None,
    ) -> GroupLeader | GroupFollower:
        """The side of the role; arguments as `replication_of` takes them."""
        if self.led_term is not None:
            return GroupLeader(store, self.takes_appends)
        member = self._member
        self._follower = GroupFollower(
            ha, store, tables, client, told.master_changed, told.ask_again, lambda: member.node.state.term
        )
        return self._follower
