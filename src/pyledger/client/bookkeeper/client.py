"""The client of a cluster of bookies: makes, opens, recovers, lists and deletes ledgers."""

from collections.abc import AsyncIterator, Mapping
from random import Random

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.fragment_replicator import LedgerReplication
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.recovery import RecoveryShell
from pyledger.client.bookkeeper.writer import AsyncAdvancedLedgerWriter, AsyncLedgerWriter
from pyledger.client.lifecycle import Lifecycle
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookkeeper_client import LedgerConfig, racks_from
from pyledger.config.net import TlsConfig
from pyledger.errors import LedgerPasswordError
from pyledger.metadata.bookies import RegisteredBookies
from pyledger.metadata.cluster import Cluster, locate
from pyledger.metadata.ledgers import StoredMetadata
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.messages import BookieInfoRequest, BookieInfoResponse
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment, check_sizes
from pyledger.protocol.bookkeeper.placement import RackOf
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.wire.bookkeeper.entry import EntryDigest

TOKEN_BITS = 63


class AsyncLedgerClient(Lifecycle):
    """Ledgers of one cluster. Use it with `async with`, or start and close it. Belongs to one event loop."""

    def __init__(
        self,
        metadata: str | Cluster,
        *,
        config: LedgerConfig | None = None,
        tls: TlsConfig | None = None,
        racks: Mapping[str, str] | RackOf | None = None,
        random: Random | None = None,
    ) -> None:
        """A client that connects once it is started.

        Args:
            metadata: A cluster, or where its metadata is: `sqlite:FILE` or `zk://host:port/ledgers`.
            config: Times and limits.
            tls: Certificates, and whether to speak TLS at all.
            racks: Where bookies stand, `/region/rack`: by id, or a function of the id. None: as settings say.
            random: Chance, for tests.

        Raises:
            ConfigError: The address is none, or a certificate cannot be read.
        """
        self.cluster = locate(metadata, make=False) if isinstance(metadata, str) else metadata
        self.config = config or LedgerConfig()
        self._random = random or Random()
        if racks is None:
            racks = racks_from(self.config.racks)
        rack_of = racks.get if isinstance(racks, Mapping) else racks
        self._bookies = BookieWatcher(
            self.cluster, self.config, tls=tls, random=self._random, rack_of=rack_of
        )

    async def start(self) -> None:
        """Connect to the metadata store, and learn which bookies there are.

        Raises:
            MetadataUnreachableError: Nobody answers.
            LedgerMetadataError: There is no cluster, or its layout is not known.
        """
        await self.cluster.start()
        try:
            await self.cluster.check()
            await self._bookies.start()
        except BaseException:
            await self.cluster.close()
            raise

    async def close(self) -> None:
        """Close all connections. Ledgers stay as they are."""
        await self._bookies.close()
        await self.cluster.close()

    # --- ledgers

    async def create(
        self,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        deferred_sync: bool = False,
    ) -> AsyncLedgerWriter:
        """Make a ledger and write to it.

        Args:
            ensemble: Bookies that its entries are spread over.
            write_quorum: Copies of each entry.
            ack_quorum: Copies that are on disk when an add is confirmed.
            digest: How entries are guarded.
            password: Asked of everybody who opens it. It is stored in the metadata as it is.
            custom: The application's own.
            ledger_id: None lets one be chosen.
            deferred_sync: Adds are answered before they are on disk; `force` puts them there.

        Raises:
            NotEnoughBookiesError: There are fewer bookies that can be written to.
            LedgerExistsError: There is a ledger of this id.
            LedgerMetadataError: The sizes do not agree.
        """
        stored = await self._create(
            (ensemble, write_quorum, ack_quorum), digest, password, custom or {}, ledger_id
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
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
    ) -> AsyncAdvancedLedgerWriter:
        """Make a ledger whose entry ids are chosen by whoever adds; see `create`."""
        stored = await self._create(
            (ensemble, write_quorum, ack_quorum), digest, password, custom or {}, ledger_id
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
        """Read a ledger.

        Args:
            ledger_id: Which.
            password: The one that it was made with.
            recover: End it if it is open: its writer is fenced off, and its last entry fixed. Else it is only
                read, and may be followed while somebody writes.
            digest: Of a ledger whose metadata does not tell.

        Raises:
            NoSuchLedgerError: There is none.
            LedgerPasswordError: The password is another one.
            LedgerRecoveryError: Its end cannot be known now.
        """
        stored = await self.cluster.ledgers.get(ledger_id)
        known = stored.metadata.password
        if known is not None and known != password:
            raise LedgerPasswordError(ledger_id, Result.UNAUTHORIZED, "its password is another one")
        guard = EntryDigest(stored.metadata.digest or digest, password)
        if recover and not stored.metadata.closed:
            shell = RecoveryShell(self._bookies, self.cluster.ledgers, stored, guard, password, self.config)
            stored = await shell.run()
        reader = AsyncLedgerReader(self._bookies, self.cluster.ledgers, stored, guard, self.config)
        if not reader.closed:
            await reader.read_last_confirmed()
        return reader

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger. Bookies give its room back at their next collection.

        Raises:
            NoSuchLedgerError: There is none.
        """
        await self.cluster.ledgers.delete(ledger_id)

    def ledgers(self) -> AsyncIterator[int]:
        """Ids of all ledgers, ascending."""
        return self.cluster.ledgers.ids()

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Metadata of a ledger, as it is stored now.

        Raises:
            NoSuchLedgerError: There is none.
        """
        return (await self.cluster.ledgers.get(ledger_id)).metadata

    def repairs(self, settings: AutoRecoveryConfig | None = None) -> LedgerReplication:
        """What finds and makes missing copies of ledgers."""
        return LedgerReplication(
            self._bookies, self.cluster.ledgers, self.config, settings or AutoRecoveryConfig()
        )

    async def bookies(self) -> RegisteredBookies:
        """The bookies that are there now; this client uses no older news from then on."""
        return await self._bookies.look()

    async def disk_of(self, bookie_id: str) -> tuple[int, int] | None:
        """Room on a bookie's disks, and how much of it is free, in bytes; None: it does not say."""
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
        check_sizes(ensemble, write_quorum, ack_quorum)
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
