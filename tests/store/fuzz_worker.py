"""Opens damaged folders, in a process of its own: `python -m tests.store.fuzz_worker CASE SEED SECONDS`.

Prints what it does before each attempt, so that a crash names its folder. Exits with 1 on the first broken
guarantee: an exception that is not ours, a hang, a record whose bytes do not match its CRC, a reader that
changed the folder.
"""

import contextlib
import faulthandler
import itertools
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from pyledger import arrow
from pyledger.errors import PyLedgerError
from pyledger.model.message import Message
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase, fingerprint, golden_case
from tests.models.commit_log import Record
from tests.store.mutations import mutate

HANG_S = 30
MEMORY_BYTES = 4 << 30
MESSAGES_MAX = 2000


class BrokenGuaranteeError(Exception):
    """The folder was read or written in a way that must never happen."""


@contextlib.contextmanager
def rejections() -> Iterator[None]:
    """A damaged folder may be rejected with a PyLedgerError; any other exception fails."""
    with contextlib.suppress(PyLedgerError):
        yield


def read_everything(store: Path) -> None:
    """Every way to read, each on its own, so that one error does not hide the others."""
    for policy in ("skip", "error"):
        with rejections(), StoreReader.open(store, on_corrupt=policy) as reader:
            for order in ("log", "queue"):
                with rejections():
                    check_messages(reader.messages(order=order))
            with rejections():
                query_everything(reader)
        with rejections():
            for batch in arrow.scan(store, on_corrupt=policy):
                batch.validate(full=True)
    with rejections():
        for _ in itertools.islice(verify(store), MESSAGES_MAX):
            pass


def check_messages(messages: Iterable[object]) -> int:
    """Hold the bytes of every record against the model; return how many there were."""
    count = 0
    for message in itertools.islice(messages, MESSAGES_MAX):
        count += 1
        record = Record.parse(bytes(message.record_view))
        if record.physical_offset != message.physical_offset or record.body != message.body:
            raise BrokenGuaranteeError(f"{message!r} is not what is at its offset")
        (
            str(message.properties),
            message.tags,
            message.keys,
            message.msg_id,
            message.born_host,
            message.tags_code,
        )
        if count % 7 == 1:
            with rejections():
                message.decompress_body(1 << 20)
    return count


def query_everything(reader: StoreReader) -> None:
    """Look up by queue, time, key and id, with the keys that the log itself names."""
    queues = reader.queues()
    for (topic, queue_id), ends in itertools.islice(queues.items(), 20):
        for timestamp in (0, 1_795_253_000_000, (1 << 63) - 1):
            found = reader.offset_by_time(topic, queue_id, timestamp)
            if not ends.min_offset <= found <= ends.max_offset:
                raise BrokenGuaranteeError(f"offset {found} by time lies outside {ends}")
        reader.units(topic, queue_id)
    for message in itertools.islice(reader.messages(), 20):
        for key in (message.keys or "").split(" "):
            check_messages(reader.query(message.topic, key))
        check_messages([reader.message_at(message.physical_offset), reader.message_by_id(message.msg_id)])


def write_more(store: Path) -> None:
    """Open for writing: without and with permission to truncate the log at damage in its middle."""
    for truncate in (False, True):
        with rejections():
            put_and_get(store, truncate)


def put_and_get(store: Path, truncate: bool) -> None:
    """A store that opens takes messages and gives them back, also to a reader after it was closed."""
    with MessageStore.open(store, truncate_at_corruption=truncate) as living:
        put = [living.put(Message("fuzz", b"after the damage", keys="k")) for _ in range(3)]
        for result in put:
            check_messages([living.message_at(result.physical_offset)])
        ends = living.queue_range("fuzz", 0)
        found = living.get("fuzz", 0, ends.max_offset - 3)
        if [m.physical_offset for m in found.messages] != [r.physical_offset for r in put]:
            raise BrokenGuaranteeError(f"put {put}, got {found}")
    with StoreReader.open(store, on_corrupt="skip") as reader:
        check_messages(reader.messages(order="log"))
        if check_messages(reader.messages(topics=["fuzz"])) < len(put):
            raise BrokenGuaranteeError("messages put after a recovery are gone")


def attempt(case: GoldenCase, seed: int, scratch: Path) -> None:
    """Damage one copy of a folder, then read and write it."""
    store = case.unpack(scratch)
    done = mutate(store, seed)
    print(json.dumps({"seed": seed, "done": done}), flush=True)
    before = fingerprint(store)
    read_everything(store)
    if fingerprint(store) != before:
        raise BrokenGuaranteeError("reading changed the folder")
    write_more(store)


def main(name: str, first_seed: int, seconds: float) -> None:
    """Try seed after seed until the time is over."""
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.enable()
    case = golden_case(name)
    end = time.monotonic() + seconds
    for seed in itertools.count(first_seed):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        with TemporaryDirectory() as scratch:
            attempt(case, seed, Path(scratch))
            shutil.rmtree(Path(scratch, "store"), ignore_errors=True)
        faulthandler.cancel_dump_traceback_later()
        if time.monotonic() > end:
            break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
