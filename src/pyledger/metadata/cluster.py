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
        store: The tree of nodes that contains it.
        ledgers: Metadata of ledgers.
        bookies: Registrations and cookies.
        marks: Under-replicated ledgers.
        election: Election of the auditor, which finds them.
    """

    def __init__(self, store: MetadataStore, root: str = ROOT) -> None:
        """Create a cluster in a store.

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
            MetadataUnreachableError: No server responds.
        """
        await self.store.start()

    async def close(self) -> None:
        """Close the session."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def format(self) -> bool:
        """Create an empty cluster. Return False and change nothing if one exists."""
        await self.store.ensure(f"{self.root}/{AVAILABLE}/{READ_ONLY}")
        await self._put_new(INSTANCE_ID, str(uuid.uuid4()).encode())
        return await self._put_layout()

    async def check(self) -> None:
        """Check that the layout of the ledgers is supported.

        Like Java's bookies, it adds the layout to a cluster that has only an instance id (Pulsar's set-up).

        Raises:
            LedgerMetadataError: The layout is not supported, or no cluster exists.
        """
        node = await self.store.get(f"{self.root}/{LAYOUT}")
        if node is None and await self.instance_id():
            await self._put_layout()
            node = await self.store.get(f"{self.root}/{LAYOUT}")
        if node is None:
            raise LedgerMetadataError(
                f"no cluster exists under {self.root}; `pyledger cluster format` creates one"
            )
        lines = node.data.decode(errors="replace").splitlines()
        if len(lines) < 2 or lines[1].partition(":")[0] != FACTORY:
            raise LedgerMetadataError(f"{self.root}/{LAYOUT} is {lines[1:]}; only {FACTORY} is supported")

    async def instance_id(self) -> str:
        """Return the instance id, which cookies contain; empty if the cluster has none."""
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
    """Return the cluster at an address, not started.

    Args:
        address: `zk://host:port,host:port/ledgers` (also with upstream's `zk+hierarchical:` and
            `zk+null:`), or `sqlite:FILE`.
        make: Create FILE if it does not exist.

    Raises:
        ConfigError: The address is malformed.
        MissingExtraError: Kazoo is not installed.
    """
    if (found := _ADDRESS.fullmatch(address)) is not None:
        # Imported here: a cluster in a file does not need kazoo.
        from pyledger.metadata.zookeeper import ZooKeeperStore  # noqa: PLC0415

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
    raise ConfigError(
        "metadata", f"{address!r} is not an address", "use zk://host:port/ledgers or sqlite:FILE"
    )
