"""Findings of a check: errors, which lose or hide messages, and notes."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of `verify`."""

    kind: str
    """One of `KINDS`."""
    file: str
    """Path of the file or folder."""
    offset: int | None
    """A physical offset (bytes) in the log, a queue offset in a queue, an entry number in an index file."""
    detail: str
    severity: Severity = "error"
    """`note`: nothing is lost; the next recovery repairs it, or it is only unusual."""


KINDS = {
    "damaged-record": "bytes in the middle of the log are not a valid record",
    "torn-record": "the last record is incomplete; recovery removes it",
    "lost-records": "there are valid records after the offset at which recovery ends the log",
    "blank-record": "the size in the blank record at a file's end is not what is left of the file",
    "short-file": "a commit-log file is shorter than the others",
    "lost-end": "queues, index or checkpoint name records after the end of the log",
    "missing-file": "a commit-log file is missing",
    "queue-file": "a queue file has another size than the others, so that no writer opens the store",
    "queue-unit": "a unit of a consume queue differs from the one that its record gives",
    "queue-missing": "records have no unit in their consume queue",
    "queue-beyond": "units of a consume queue name no record of the log",
    "batch-count": "the message count in a batch's header is wrong; the messages it holds are counted",
    "unreachable": "records repeat the queue offsets of others; they are only read in log order",
    "illegal-topic": "records name a topic or queue that cannot have files; they are only read in log order",
    "index-header": "the header of an index file does not fit its entries",
    "index-chain": "a hash chain of an index file is broken",
    "index-entry": "an index entry names no record with such a key",
    "index-missing": "keys of records are not in the index",
    "checkpoint": "the checkpoint does not fit the log",
    "damaged-entry": "an entry of a DLedger log does not match its checksums",
    "lost-entries": "entries in the middle of a DLedger log are missing",
    "stale-tail": "there are bytes after the last entry of a DLedger log",
    "index-unit": "the index of a DLedger log does not fit its data files",
    "index-beyond": "the index of a DLedger log names entries that are not there",
    "lost-tail": "durable entries at the end of a DLedger log are missing",
    "term": "the term file of a DLedger node does not fit its log",
    "bookie-journal": "a record of a bookie's journal is damaged; a start replays nothing after it",
    "bookie-log": "an entry log of a bookie is damaged, or its map of ledgers is wrong",
    "bookie-index": "the index of a ledger names a position that does not hold the entry",
    "bookie-lost": "entries of a bookie are in no index, so that it would report them as missing",
    "bookie-list": "the list of a bookie's ledgers is damaged; a start rebuilds it from the indexes",
    "bookie-digest": "an entry of a ledger does not match its digest",
    "staged-rows": "staged rows of a Spark job that is not known to be running",
    "unclean": "the last shutdown was not clean, or a writer is running",
    "unusual": "something that does not belong in a store folder",
}
