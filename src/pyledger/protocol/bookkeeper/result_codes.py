"""How operations on ledgers end, in BookKeeper's own numbers.

Source: BookKeeper client/api/BKException.java, proto/PerChannelBookieClient.java.
"""

from enum import IntEnum

from pyledger.protocol.bookkeeper.messages import Status


class Result(IntEnum):
    """The end of an operation of a client."""

    OK = 0
    READ = -1
    NOT_ENOUGH_BOOKIES = -6
    NO_SUCH_LEDGER = -7
    DIGEST_MATCH = -5
    BOOKIE_NOT_AVAILABLE = -8
    LEDGER_RECOVERY = -10
    LEDGER_CLOSED = -11
    WRITE = -12
    NO_SUCH_ENTRY = -13
    PROTOCOL_VERSION = -16
    METADATA_VERSION = -17
    ADD_QUORUM_TIMEOUT = -21
    TIMEOUT = -23
    ILLEGAL_OPERATION = -100
    LEDGER_FENCED = -101
    UNAUTHORIZED = -102
    READ_ONLY_BOOKIE = -104
    TOO_MANY_REQUESTS = -105
    DATA_UNKNOWN = -108


ABSENT = frozenset({Result.NO_SUCH_ENTRY, Result.NO_SUCH_LEDGER})
"""A bookie's promise that it never acknowledged an entry."""
FATAL_TO_WRITERS = frozenset({Result.ILLEGAL_OPERATION, Result.LEDGER_FENCED, Result.UNAUTHORIZED})
"""No other bookie would help."""

_RESULTS = {
    Status.EOK: Result.OK,
    Status.ENOENTRY: Result.NO_SUCH_ENTRY,
    Status.ENOLEDGER: Result.NO_SUCH_LEDGER,
    Status.EBADVERSION: Result.PROTOCOL_VERSION,
    Status.EUA: Result.UNAUTHORIZED,
    Status.EFENCED: Result.LEDGER_FENCED,
    Status.EREADONLY: Result.READ_ONLY_BOOKIE,
    Status.ETOOMANYREQUESTS: Result.TOO_MANY_REQUESTS,
    Status.EUNKNOWNLEDGERSTATE: Result.DATA_UNKNOWN,
}


def result_of(status: Status, otherwise: Result) -> Result:
    """What a bookie's answer means to a client; `otherwise` is the operation's own failure."""
    return _RESULTS.get(status, otherwise)
