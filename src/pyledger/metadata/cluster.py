"""One cluster in a metadata store: its layout, its name, its ledgers and its bookies.

Source: BookKeeper meta/LedgerLayout.java, ZKMetadataDriverBase.java, discover/ZKRegistrationManager.java.
"""

import re
import uuid
from typing import Self

from pyledger.errors import ConfigError, LedgerMetadataError, NodeExistsError
from pyledger.metadata.auditor_election import AuditorElection
from pyledger.metadata.bookies import AVAILABLE, READ_ONLY, BookieTable
from pyledger.metadata.ledgers import LedgerTable
from pyledger.metadata.sqlite import SqliteStore
from pyledger.metadata.store import MetadataStore
from pyledger.metadata.underreplication import UnderreplicatedLedgers
from pyledger.model.address import can_be_host

ROOT = "/ledgers"
LAYOUT, INSTANCE_ID = "LAYOUT", "INSTANCEID"
LAYOUT_VERSION = 2
FACTORY = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
FACTORY_VERSION = 1
_ADDRESS = re.compile(r"(?P<scheme>zk(?:\+(?:null|hierarchical))?)://(?P<hosts>[^/]+)(?P<root>/.*)?")
_FILE = re.compile(r"sqlite:(?://)?(?P<path>.+)")


class Cluster:
    """A cluster's metadata. Use it with `async with`, or start and close it.

    Attributes:
        store: The tree that all of it is in.
        ledgers: Metadata of ledgers.
        bookies: Registrations and cookies.
        marks: Ledgers that lack copies.
        election: Of the auditor, who looks for them.
    """

    def __init__(self, store: MetadataStore, root: str = ROOT) -> None:
        """A cluster in a store.

        Args:
            store: Not started yet.
            root: Path of the cluster.
        """
        self.store, self.root = store, root.rstrip("/")
        self.ledgers = LedgerTable(store, self.root)
        self.bookies = BookieTable(store, self.root)
        self.marks = UnderreplicatedLedgers(store, self.root)
        self.election = AuditorElection(store, self.root)

    async def start(self) -> None:
        """Connect.

        Raises:
            MetadataUnreachableError: Nobody answers.
        """
        await self.store.start()

    async def close(self) -> None:
        """End the session."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def format(self) -> bool:
        """Make an empty cluster; False when there is one, which is left as it is."""
        await self.store.ensure(f"{self.root}/{AVAILABLE}/{READ_ONLY}")
        await self._put_new(INSTANCE_ID, str(uuid.uuid4()).encode())
        return await self._put_layout()

    async def check(self) -> None:
        """Make sure that ledgers are kept in the way that is known here.

        A cluster with a name and no layout, as Pulsar's set-up leaves it, gets one, as from Java's bookies.

        Raises:
            LedgerMetadataError: They are not, or there is no cluster.
        """
        node = await self.store.get(f"{self.root}/{LAYOUT}")
        if node is None and await self.instance_id():
            await self._put_layout()
            node = await self.store.get(f"{self.root}/{LAYOUT}")
        if node is None:
            raise LedgerMetadataError(
                f"there is no cluster under {self.root}; `pyledger cluster format` makes one"
            )
        lines = node.data.decode(errors="replace").splitlines()
        if len(lines) < 2 or lines[1].partition(":")[0] != FACTORY:
            raise LedgerMetadataError(f"{self.root}/{LAYOUT} is {lines[1:]}; only {FACTORY} is known")

    async def instance_id(self) -> str:
        """The name that cookies bear; empty where the cluster has none."""
        node = await self.store.get(f"{self.root}/{INSTANCE_ID}")
        return "" if node is None else node.data.decode()

    async def _put_layout(self) -> bool:
        return await self._put_new(LAYOUT, f"{LAYOUT_VERSION}\n{FACTORY}:{FACTORY_VERSION}".encode())

    async def _put_new(self, name: str, data: bytes) -> bool:
        try:
            await self.store.create(f"{self.root}/{name}", data)
        except NodeExistsError:
            return False
        return True


def locate(address: str, *, make: bool = True) -> Cluster:
    """The cluster at an address; not started yet.

    Args:
        address: `zk://host:port,host:port/ledgers` (also with upstream's `zk+hierarchical:` and
            `zk+null:`), or `sqlite:FILE`.
        make: A FILE that is missing is made.

    Raises:
        ConfigError: It is none, or what it needs is not installed.
    """
    if (found := _ADDRESS.fullmatch(address)) is not None:
        # Imported here, since a cluster in a file needs nothing but Python.
        try:
            from pyledger.metadata.zookeeper import ZooKeeperStore  # noqa: PLC0415
        except ImportError:
            remedy = "install pyledger with its extra `ledger`"
            raise ConfigError("metadata", "ZooKeeper needs kazoo", remedy) from None
        hosts, root = found["hosts"].replace(";", ","), found["root"] or ROOT
        try:
            if not all(can_be_host(one.rpartition(":")[0] or one) for one in hosts.split(",")):
                raise ValueError("the host name is not valid")
            store = ZooKeeperStore(hosts)
        except ValueError as error:
            raise ConfigError("metadata", f"{address!r}: {error}", "use zk://host:port/ledgers") from error
        return Cluster(store, ROOT if root == "/" else root)
    if (found := _FILE.fullmatch(address)) is not None:
        return Cluster(SqliteStore(found["path"], make=make))
    raise ConfigError("metadata", f"{address!r} is no address", "use zk://host:port/ledgers or sqlite:FILE")
