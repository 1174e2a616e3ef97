"""What a check of a store found: problems that lose or hide messages, and notes."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of `verify`."""

    kind: str
    """A short name, one of `KINDS`."""
    file: str
    """Path of the file or folder."""
    offset: int | None
    """Where: in the log a physical offset (bytes), in a queue a queue offset, in an index file an entry
    number."""
    detail: str
    severity: Severity = "problem"
    """`note`: nothing is lost; recovery at the next opening for writing mends it, or it is merely unusual."""


KINDS = {
    "damaged-record": "bytes in the middle of the log are no sound record",
    "torn-record": "the last record is not whole; recovery cuts it off",
    "lost-records": "sound records stand behind the place where recovery ends the log",
    "blank-record": "the blank record at a file's end gives another size than is left",
    "cut-file": "a commit-log file is shorter than it was made",
    "lost-end": "queues, index or checkpoint tell of records that were behind the end of the log",
    "missing-file": "a commit-log file is not there",
    "queue-file": "a queue file has another size than the others, so that no writer opens the store",
    "queue-unit": "a unit of a consume queue is not what its record gives",
    "queue-missing": "records have no unit in their consume queue",
    "queue-beyond": "units of a consume queue name no record of the log",
    "batch-count": "batches state another number of messages than they hold, which is what counts",
    "unreachable": "records have queue offsets that others had before; only log order reaches them",
    "illegal-topic": "records name a topic or queue that cannot have files; only log order reaches them",
    "index-header": "the header of an index file does not fit its entries",
    "index-chain": "a hash chain of an index file is broken",
    "index-entry": "an index entry names no record with such a key",
    "index-missing": "keys of records are not in the index",
    "checkpoint": "the checkpoint does not fit the log",
    "damaged-entry": "an entry of a DLedger log does not match its checksums",
    "lost-entries": "entries of a DLedger log are missing between others",
    "stale-tail": "bytes stand behind the last entry of a DLedger log",
    "index-unit": "the index of a DLedger log does not fit its data files",
    "index-beyond": "the index of a DLedger log names entries that are not there",
    "lost-tail": "a DLedger log lacks entries that were durable once",
    "term": "the term file of a DLedger node does not fit its log",
    "bookie-journal": "a record of a bookie's journal is damaged; a start replays nothing behind it",
    "bookie-log": "an entry log of a bookie is damaged, or its map of ledgers is wrong",
    "bookie-index": "the index of a ledger names an entry that does not stand there",
    "bookie-lost": "entries that a bookie had are named by no index, so that it would deny them",
    "bookie-list": "the list of a bookie's ledgers is damaged; a start makes it anew from the indexes",
    "bookie-digest": "an entry of a ledger does not match its digest",
    "staged-rows": "rows that a Spark job has staged, which does not run any more, as far as is known",
    "unclean": "the last writer did not shut down in good order, or one is running",
    "unusual": "something that does not belong into a store folder",
}
