"""What bookies leave in their folders and in ZooKeeper: cookies, and where they listen.

Source: BookKeeper bookie/Cookie.java, discover/ZKRegistrationManager.java, discover/BookieServiceInfo.java.
"""

import re
from dataclasses import dataclass

from pyledger.errors import LedgerMetadataError
from pyledger.model.address import split_address
from pyledger.wire.bookkeeper.schema import DecodeError, format_text, message, parse_text

COOKIE_LAYOUT = 5
COOKIE_LAYOUTS = range(3, COOKIE_LAYOUT + 1)
"""With protobuf text; older cookies were lines."""
RPC_PROTOCOL = "bookie-rpc"
ENDPOINT_ID = "bookie"
_BOOKIE_ID = re.compile(r"[\w.\-:-_]+", re.ASCII)


def check_bookie_id(bookie_id: str) -> str:
    """A name that a bookie may have.

    Raises:
        LedgerMetadataError: It may not.
    """
    if _BOOKIE_ID.fullmatch(bookie_id) is None or bookie_id.lower() == "readonly":
        raise LedgerMetadataError(
            f"{bookie_id!r} is no bookie id; letters, digits, '.', '-', '_', ':' make one"
        )
    return bookie_id


@dataclass(frozen=True, slots=True)
class Cookie:
    """What proves that a bookie has the disks it had before."""

    bookie_host: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    instance_id: str = ""
    index_dirs: tuple[str, ...] = ()


def encode_cookie(cookie: Cookie) -> bytes:
    """Text of a cookie."""
    whole = message("CookieFormat")(
        bookieHost=cookie.bookie_host,
        journalDir=",".join(cookie.journal_dirs),
        ledgerDirs=_counted(cookie.ledger_dirs),
    )
    if cookie.instance_id:
        whole.instanceId = cookie.instance_id
    if cookie.index_dirs:
        whole.indexDirs = _counted(cookie.index_dirs)
    return b"%d\n" % COOKIE_LAYOUT + format_text(whole)


def decode_cookie(data: bytes) -> Cookie:
    """Read a cookie.

    Raises:
        LedgerMetadataError: It is malformed, or of a layout that is not known.
    """
    number, _, body = data.partition(b"\n")
    if not number.strip().isdigit() or int(number) not in COOKIE_LAYOUTS:
        raise LedgerMetadataError(f"a cookie of layout {number[:20]!r}; {COOKIE_LAYOUT} is known")
    try:
        whole = parse_text("CookieFormat", body)
        ledger_dirs, index_dirs = _uncounted(whole.ledgerDirs), _uncounted(whole.indexDirs)
    except ValueError as error:
        raise LedgerMetadataError(f"a cookie is malformed: {error}") from None
    journal_dirs = tuple(whole.journalDir.split(","))
    return Cookie(whole.bookieHost, journal_dirs, ledger_dirs, whole.instanceId, index_dirs)


def _counted(folders: tuple[str, ...]) -> str:
    return "\t".join((str(len(folders)), *folders))


def _uncounted(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    count, *folders = text.split("\t")
    if int(count) != len(folders):
        raise ValueError(f"the count is {count}, but {len(folders)} folders are listed")
    return tuple(folders)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where something listens."""

    id: str
    port: int
    host: str
    protocol: str = RPC_PROTOCOL
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """What a bookie registers with."""

    endpoints: tuple[Endpoint, ...]

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port for ledgers; None: it names no such endpoint."""
        for endpoint in self.endpoints:
            if endpoint.protocol == RPC_PROTOCOL:
                return endpoint.host, endpoint.port
        return None


def encode_registration(info: Registration) -> bytes:
    """Bytes of a registration."""
    whole = message("BookieServiceInfoFormat")()
    for one in info.endpoints:
        whole.endpoints.add(
            id=one.id,
            port=one.port,
            host=one.host,
            protocol=one.protocol,
            auth=one.auth,
            extensions=one.extensions,
        )
    encoded: bytes = whole.SerializeToString()
    return encoded


def decode_registration(bookie_id: str, data: bytes) -> Registration:
    """Read a registration; an empty one means that the id is host and port.

    Raises:
        LedgerMetadataError: It is malformed, or empty under an id that is no address.
    """
    if not data:
        try:
            host, port = split_address(bookie_id)
        except ValueError:
            problem = f"bookie {bookie_id!r} has registered no address, and its id is not one"
            raise LedgerMetadataError(problem) from None
        return Registration((Endpoint(ENDPOINT_ID, port, host),))
    try:
        whole = message("BookieServiceInfoFormat").FromString(data)
    except DecodeError as error:
        raise LedgerMetadataError(f"the registration of bookie {bookie_id!r} is malformed: {error}") from None
    return Registration(
        tuple(
            Endpoint(one.id, one.port, one.host, one.protocol, tuple(one.auth), tuple(one.extensions))
            for one in whole.endpoints
        )
    )
