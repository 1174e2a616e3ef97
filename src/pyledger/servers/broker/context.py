"""The context that the processors of a broker share."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

from pyledger.clock import Clock
from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.ha import HaConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.model.topic import Permission
from pyledger.net.deferred import Deferred
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.broker_stats import BrokerCounts
from pyledger.protocol.broker.client_channel import Notice
from pyledger.servers.broker.ha.replication import Replication
from pyledger.servers.broker.message_puts import MessagePuts
from pyledger.servers.broker.pop_service import PopService
from pyledger.servers.broker.pull_request_hold import PullRequestHold
from pyledger.servers.broker.tables import BrokerTables
from pyledger.servers.broker.topic_routes import TopicRoutes
from pyledger.servers.broker.transaction_service import Transactions
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from pyledger.servers.broker.auth.auth_file import WatchedRules

T = TypeVar("T")
HEADER_ROOM_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """What the processors and services of one broker share; the store and the tables are open."""

    config: BrokerConfig
    delivery: DeliveryConfig
    broker_state: BrokerState
    store: StoreEngine
    tables: BrokerTables
    puts: MessagePuts
    held: PullRequestHold
    replication: Replication
    transactions: Transactions
    pops: PopService
    routes: TopicRoutes
    counts: BrokerCounts
    access_rules: "WatchedRules | None"
    """Permissions; None: any client may do anything except change the broker."""
    net: NetConfig
    tls: TlsConfig | None
    ha: HaConfig
    clock: Clock
    random: Random
    address: str
    """`host:port` that clients use."""
    started_ms: int
    """When the broker was started, ms since 1970."""
    now_ms: Callable[[], int]
    """Milliseconds since 1970 by a monotonic clock; for tables, not for what is stored."""
    tables_changed: Callable[[], "asyncio.Future[None]"]
    """Stores topics and groups and registers them with the name servers; done when they are stored."""
    change_settings: Callable[[Mapping[str, str]], None]
    """Changes settings of the running broker, by upstream's names."""
    change_role: Callable[[], Callable[[str, int], None] | None]
    """Returns the function that changes the broker's role and id; None where they cannot change."""
    notify: Callable[[Iterable[Notice]], None]
    """Notifies clients that the members of a group have changed."""

    @property
    def records_max_bytes(self) -> int:
        """Maximum bytes of several records in one response: clients drop connections with longer frames."""
        return self.net.frame_max_bytes - HEADER_ROOM_BYTES

    def random_below(self, limit: int) -> int:
        """Return a random number from 0 to `limit` - 1."""
        return self.random.randrange(limit)

    def stored(
        self, answer: Callable[[], T | Deferred[T] | asyncio.Future[T]]
    ) -> "T | Deferred[T] | asyncio.Future[T]":
        """Call what may create topics or groups; if it did, its result waits until they are stored."""
        tables = self.tables
        before = tables.topics.version, tables.groups.version
        result = answer()
        if (tables.topics.version, tables.groups.version) == before:
            return result
        return asyncio.ensure_future(both(self.tables_changed(), result))


async def both(changed: "asyncio.Future[None]", result: "T | Deferred[T] | asyncio.Future[T]") -> T:
    """Return the result, when the tables are stored."""
    await changed
    if isinstance(result, Deferred | asyncio.Future):
        return await result
    return result


def state_of(config: BrokerConfig, *, slave: bool, master_alive: bool) -> BrokerState:
    """Return the state of a broker from its settings and its role."""
    return BrokerState(
        slave=slave,
        master_alive=master_alive,
        cluster=config.cluster,
        broker_name=config.name,
        broker_id=config.broker_id,
        region=config.region,
        permission=Permission(config.permission),
        trace=config.trace,
    )


Reply = Answer | Deferred[Answer] | asyncio.Future[Answer]
Method = Callable[[Connection, RemotingCommand], Reply]
"""Answers requests of one code."""


def watched_rules(path: str) -> "WatchedRules | None":
    """Return the permissions in a file; None without one.

    Raises:
        ConfigError: it cannot be read or parsed.
    """
    if not path:
        return None
    from pyledger.servers.broker.auth.auth_file import WatchedRules  # noqa: PLC0415 - only with rules

    return WatchedRules(Path(path))


def client_of(
    user: str,
    rules: "WatchedRules | None",
    *,
    config: NetConfig,
    tls: TlsConfig | None,
    on_close: Callable[[Connection], None],
) -> RemotingClient:
    """Create the client of a broker; it signs as a user of the rules, if one is named.

    Raises:
        ConfigError: the rules have no such user.
    """
    if not user:
        return RemotingClient(config=config, tls=tls, on_close=on_close)
    from pyledger.servers.broker.auth.signing_client import SigningClient  # noqa: PLC0415 - only with rules

    return SigningClient(rules, user, config=config, tls=tls, on_close=on_close)
