"""Each maintenance command, with one system call after the other failing: an error of ours that names a file,
nothing lost, and a second attempt that succeeds."""

from pathlib import Path

import pytest

from tests.fault_injection.shim import compiler, run_child

PREAMBLE = """
import errno, shutil, sys
from pathlib import Path
from pyledger.errors import StoreError
from pyledger import Message
from pyledger.store import MessageStore, StoreReader, archive, rebuild, repair, unarchive, verify
from pyledger.store.maintenance.truncate_log import truncate_log
from tests.fault_injection.shim import Call, IoFaults
from tests.store.cold.archived import TIME_MAX_MS, archive_all, found

TRIES = 3
SMALL = dict(mapped_file_size_bytes=16384, consume_queue_file_size_bytes=2000, index_slots=50,
             index_entries=500)
faults, path, spare = IoFaults(), Path(sys.argv[1]), Path(sys.argv[1] + ".spare")

def damage(store):
    file = max((store / "consumequeue" / "t" / "0").iterdir())
    file.write_bytes(bytes(2000))

def ends(store):
    with StoreReader.open(store) as reader:
        return [message.physical_offset for message in reader.messages()]

ACTIONS = {
    "archive": (lambda store: None, lambda store: list(archive(store, older_than_ms=TIME_MAX_MS))),
    "unarchive": (archive_all, lambda store: list(unarchive(store))),
    "rebuild": (lambda store: None, rebuild),
    "repair": (damage, repair),
    "truncate": (lambda store: None, lambda store: truncate_log(store, middle)),
}
prepare, act = ACTIONS[sys.argv[2]]
with MessageStore.open(path, **SMALL) as store:
    for number in range(80):
        store.put(Message("t", b"%d" % number * 250, keys=f"k{number}"))
offsets = ends(path)
middle = offsets[len(offsets) // 2]
prepare(path)
before = found(path)
path.rename(spare)
shutil.copytree(spare, path)
seen = {call: faults.seen(call) for call in Call}
act(path)
after = found(path)
counts = {call: faults.seen(call) - seen[call] for call in Call}
done = 0
for call, count in counts.items():
    for number in range(0, count, max(1, -(-count // TRIES))):
        shutil.rmtree(path)
        shutil.copytree(spare, path)
        faults.fail(call, errno.EIO, after=number)
        try:
            act(path)
        except StoreError as error:
            assert str(path) in str(error), error
            done += 1
        faults.heal(call)
        if sys.argv[2] != "truncate":  # its log is shorter once it has begun
            assert found(path) == before, (call, number)
        act(path)
        assert found(path) == after, (call, number)
if sys.argv[2] != "truncate":  # the next opening shortens its queues
    assert [one for one in verify(path) if one.severity == "problem"] == []
print(done)
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")
@pytest.mark.parametrize("action", ["archive", "unarchive", "rebuild", "repair", "truncate"])
def test_a_call_that_fails_is_an_error_that_names_a_file(tmp_path: Path, action: str) -> None:
    assert int(run_child(PREAMBLE, tmp_path, str(tmp_path / "store"), action)) > 0
