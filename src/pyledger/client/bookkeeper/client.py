"""The client of a cluster of bookies: creates, opens, recovers, lists and deletes ledgers."""

from collections.abc import AsyncIterator, Mapping
from random import Random

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.ledger_replication import LedgerReplication
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.recovery import RecoveryShell
from pyledger.client.bookkeeper.writer import AsyncAdvancedLedgerWriter, AsyncLedgerWriter
from pyledger.client.lifecycle import Lifecycle
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig, racks_from
from pyledger.config.fields import checked_function, checked_limit, checked_type
from pyledger.config.net import TlsConfig
from pyledger.errors import ConfigError, LedgerPasswordError
from pyledger.metadata.bookies import RegisteredBookies
from pyledger.metadata.cluster import Cluster, locate
from pyledger.metadata.ledgers import StoredMetadata
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.messages import BookieInfoRequest, BookieInfoResponse
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment, are_sizes
from pyledger.protocol.bookkeeper.placement import RackOf
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.wire.bookkeeper.entry import EntryDigest

TOKEN_BITS = 63
SIZES = "ensemble_size", "write_quorum_size", "ack_quorum_size"


class AsyncLedgerClient(Lifecycle):
    """Creates, opens and deletes ledgers of one cluster. Belongs to one event loop.

    Use it with `async with`, or `start` and `close` it.
    """

    def __init__(
        self,
        metadata: str | Cluster,
        *,
        config: BookkeeperConfig | None = None,
        tls: TlsConfig | None = None,
        racks: Mapping[str, str] | RackOf | None = None,
    ) -> None:
        """Create a client; `start` connects it.

        Args:
            metadata: A cluster, or the location of its metadata: `sqlite:FILE` or `zk://host:port/ledgers`.
            config: Timeouts and limits.
            tls: Certificates; None: no TLS.
            racks: Location of each bookie as `/region/rack`, by id or as a function of the id. None: the
                setting `racks`.

        Raises:
            ConfigError: the address is invalid, an argument has another type, or a certificate cannot
                be read.
        """
        checked_type("metadata", metadata, str | Cluster)
        checked_type("config", config, BookkeeperConfig | None)
        checked_type("tls", tls, TlsConfig | None)
        self.cluster = locate(metadata, make=False) if isinstance(metadata, str) else metadata
        self.config = config or BookkeeperConfig()
        self._random = Random()
        if racks is None:
            racks = racks_from(self.config.racks)
        if not isinstance(racks, Mapping):
            checked_function("racks", racks)
        rack_of = racks.get if isinstance(racks, Mapping) else racks
        self._bookies = BookieWatcher(
            self.cluster, self.config, tls=tls, random=self._random, rack_of=rack_of
        )

    async def start(self) -> None:
        """Connect to the metadata store and read the list of bookies.

        Raises:
            MetadataUnreachableError: the metadata store does not answer.
            LedgerMetadataError: the store holds no cluster, or one of another layout.
        """
        await self.cluster.start()
        try:
            await self.cluster.check()
            await self._bookies.start()
        except BaseException:
            await self.cluster.close()
            raise

    async def close(self) -> None:
        """Close all connections. Ledgers do not change."""
        await self._bookies.close()
        await self.cluster.close()

    # --- ledgers

    async def create(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum_size: int = 2,
        ack_quorum_size: int = 2,
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        deferred_sync: bool = False,
    ) -> AsyncLedgerWriter:
        """Create a ledger and return its writer.

        Args:
            ensemble_size: Number of bookies that its entries are spread over.
            write_quorum_size: Replicas of each entry.
            ack_quorum_size: Replicas that are durable when an add is confirmed.
            digest: Checksum of each entry.
            password: Required to open it. It is stored in the metadata in plain text.
            custom: Metadata of the application.
            ledger_id: None: the metadata store chooses one.
            deferred_sync: Confirm adds before they are durable; `force` flushes them.

        Raises:
            NotEnoughBookiesError: fewer than `ensemble_size` bookies are writable.
            LedgerExistsError: a ledger with this id exists.
            ConfigError: the sizes are not ensemble >= write quorum >= ack quorum, or an argument has another
                type.
        """
        stored = await self._create(
            (ensemble_size, write_quorum_size, ack_quorum_size), digest, password, custom or {}, ledger_id
        )
        return AsyncLedgerWriter(
            self._bookies,
            self.cluster.ledgers,
            stored,
            EntryDigest(digest, password),
            self.config,
            deferred_sync=deferred_sync,
        )

    async def create_advanced(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum_size: int = 2,
        ack_quorum_size: int = 2,
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
    ) -> AsyncAdvancedLedgerWriter:
        """Create a ledger whose entry ids the caller of `add_at` chooses.

        Args:
            ensemble_size: Number of bookies, as in `create`.
            write_quorum_size: Replicas of each entry, as in `create`.
            ack_quorum_size: Durable replicas of a confirmed add, as in `create`.
            digest: As in `create`.
            password: As in `create`.
            custom: As in `create`.
            ledger_id: As in `create`.

        Raises:
            NotEnoughBookiesError: fewer than `ensemble_size` bookies are writable.
            LedgerExistsError: a ledger with this id exists.
            ConfigError: the sizes are not ensemble >= write quorum >= ack quorum, or an argument has another
                type.
        """
        stored = await self._create(
            (ensemble_size, write_quorum_size, ack_quorum_size), digest, password, custom or {}, ledger_id
        )
        return AsyncAdvancedLedgerWriter(
            self._bookies, self.cluster.ledgers, stored, EntryDigest(digest, password), self.config
        )

    async def open(
        self,
        ledger_id: int,
        password: bytes = b"",
        *,
        recover: bool = True,
        digest: DigestType = DigestType.CRC32,
    ) -> AsyncLedgerReader:
        """Open a ledger for reading.

        Args:
            ledger_id: Its id.
            password: The password it was created with.
            recover: Close it if it is open: its writer is fenced and its last entry fixed. False: only read
                it, perhaps while a writer adds to it.
            digest: Digest of a ledger whose metadata does not contain it.

        Raises:
            NoSuchLedgerError: the ledger does not exist.
            LedgerPasswordError: the password is wrong.
            LedgerRecoveryError: its last entry cannot be determined now.
        """
        checked_type("password", password, bytes)
        stored = await self.cluster.ledgers.get(ledger_id)
        known = stored.metadata.password
        if known is not None and known != password:
            raise LedgerPasswordError(ledger_id, Result.UNAUTHORIZED, "the password is wrong")
        guard = EntryDigest(stored.metadata.digest or digest, password)
        if recover and not stored.metadata.closed:
            shell = RecoveryShell(self._bookies, self.cluster.ledgers, stored, guard, password, self.config)
            stored = await shell.run()
        reader = AsyncLedgerReader(self._bookies, self.cluster.ledgers, stored, guard, self.config)
        if not reader.closed:
            await reader.read_last_confirmed()
        return reader

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger. Bookies free its space at their next garbage collection.

        Raises:
            NoSuchLedgerError: the ledger does not exist.
        """
        await self.cluster.ledgers.delete(ledger_id)

    def ledgers(self) -> AsyncIterator[int]:
        """Return the ids of all ledgers, in ascending order."""
        return self.cluster.ledgers.ids()

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Return the metadata of a ledger as stored now.

        Raises:
            NoSuchLedgerError: the ledger does not exist.
        """
        return (await self.cluster.ledgers.get(ledger_id)).metadata

    def repairs(self, settings: AutoRecoveryConfig | None = None) -> LedgerReplication:
        """Return the tool that finds and re-replicates under-replicated ledgers."""
        return LedgerReplication(
            self._bookies, self.cluster.ledgers, self.config, settings or AutoRecoveryConfig()
        )

    async def bookies(self) -> RegisteredBookies:
        """Return the registered bookies, and use them from now on."""
        return await self._bookies.look()

    async def disk_of(self, bookie_id: str) -> tuple[int, int] | None:
        """Return the total and free bytes of a bookie's disks; None: it does not report them."""
        answer = await self._bookies.answer(bookie_id, BookieInfoRequest(), self.config.read_timeout_ms)
        if not isinstance(answer, BookieInfoResponse) or answer.total_disk_capacity is None:
            return None
        return answer.total_disk_capacity, answer.free_disk_space or 0

    # --- inside

    async def _create(
        self,
        sizes: tuple[int, int, int],
        digest: DigestType,
        password: bytes,
        custom: Mapping[str, bytes],
        ledger_id: int | None,
    ) -> StoredMetadata:
        ensemble, write_quorum, ack_quorum = sizes
        for name, size in zip(SIZES, sizes, strict=True):
            checked_type(name, size, int)
        if not are_sizes(ensemble, write_quorum, ack_quorum):
            problem = f"{ensemble}, {write_quorum} and {ack_quorum} do not fit together"
            raise ConfigError(", ".join(SIZES), problem, f"give {' >= '.join(SIZES)}")
        checked_type("digest", digest, DigestType)
        checked_type("password", password, bytes)
        checked_type("custom", custom, Mapping)
        checked_limit("ledger_id", ledger_id, 0)
        first = Segment(0, self._bookies.choose(ensemble, write_quorum))
        metadata = LedgerMetadata(
            ensemble_size=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            segments=(first,),
            digest=digest,
            password=password,
            custom=dict(custom),
            token=self._random.getrandbits(TOKEN_BITS),
        )
        return await self.cluster.ledgers.create(metadata, ledger_id)
