"""With DLedger's own nodes: Java's store reads our folders, groups of both kinds hold the same entries."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from pyledger.client.dledger import DLedgerClient
from pyledger.config.dledger import UPSTREAM_TIMES, DLedgerConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.protocol.dledger.messages import Entry, TermState
from pyledger.servers.dledger.server import DLedgerServer
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.store import DLedgerStore
from tests.interop.dledger_peers import JavaNode, judge, require_kit, run
from tests.servers.dledger.group import hand_over
from tests.servers.dledger.test_group import entries_of
from tests.support.ports import free_ports

pytestmark = pytest.mark.java

STORE = DLedgerStoreConfig(data_file_size_bytes=16384, index_file_size_bytes=4096)
SIZES = ["mappedFileSizeForEntryData=16384", "mappedFileSizeForEntryIndex=4096"]
IDS = ("n0", "n1", "n2")


def test_java_takes_our_folder_as_it_is_also_after_cuts_and_crashes(tmp_path: Path) -> None:
    require_kit()
    rng = random.Random(7)
    path = tmp_path / "dledger-n0"
    with DLedgerStore.open(path, STORE) as store:
        store.save_term_state(TermState(3, "n0"))
        store.append_bodies(2, [rng.randbytes(rng.randrange(900)) for _ in range(150)])
        store.truncate(store.entry(90))
        other = store.entry(60)
        store.truncate(Entry(60, 3, other.pos, 48 + len(other.body), bytes(len(other.body))))
        store.append_bodies(3, [b"", *(rng.randbytes(rng.randrange(400)) for _ in range(70))])
        store.set_committed(store.end_index)
        crashed = tmp_path / "crashed" / "dledger-n0"
        shutil.copytree(path, crashed)
    for folder in (path, crashed):
        code, entries, summary = judge(folder, "--strict")
        ours = entries_of(folder)
        assert (code, summary["complaints"], summary["bytesBehindEnd"]) == (0, [], 0)
        assert [(e["index"], e["term"], e["pos"], e["size"], e["chainCrc"]) for e in entries] == [
            (e.index, e.term, e.pos, e.size, e.chain_crc) for e in ours
        ]
    assert summary["end"] == 131


class Mixed:
    """Three members, some of ours in this process, the others Java's."""

    def __init__(self, folder: Path, ours: tuple[str, ...]) -> None:
        self.folder, self.ours = folder, ours
        self.peers = ";".join(f"{one}-127.0.0.1:{port}" for one, port in zip(IDS, free_ports(3), strict=True))
        self.java: dict[str, JavaNode] = {}
        self.servers: dict[str, DLedgerServer] = {}

    async def start(self, *ids: str) -> None:
        for one in ids:
            if one not in self.ours:
                self.java[one] = JavaNode(one, self.peers, self.folder, SIZES)
        for one in ids:
            if one in self.ours:
                config = DLedgerConfig(**UPSTREAM_TIMES)  # type: ignore[arg-type]
                server = DLedgerServer("g", one, self.peers, str(self.folder), config=config, store=STORE)
                await server.start()
                self.servers[one] = server
            else:
                await asyncio.to_thread(self.java[one].wait_ready)

    async def stop(self, one: str, *, kill: bool = False) -> None:
        if one in self.servers:
            await self.servers.pop(one).close()
        elif one in self.java:
            node = self.java.pop(one)
            await asyncio.to_thread(node.kill if kill else node.stop)

    async def append_with_java(self, seed: str, count: int) -> None:
        options = ["--group", "g", "--peers", self.peers, "--mode", "async", "--seed", seed]
        sizes = ["--count", str(count), "--min", "0", "--max", "500"]
        code, lines = await asyncio.to_thread(run, "Append", *options, *sizes)
        assert code == 0
        assert lines[-1]["ok"] == count


def end_index(folder: Path) -> int:
    with DLedgerReader.open(folder) as reader:
        return reader.scan().last_index


@pytest.mark.parametrize(
    "ours",
    [pytest.param(("n2",), id="2-java"), pytest.param(("n1", "n2"), id="1-java", marks=pytest.mark.slow)],
)
def test_mixed_groups_hold_the_same_entries(ours: tuple[str, ...], tmp_path: Path) -> None:
    """Each member leads once; one of either kind is away meanwhile and is filled again."""
    require_kit()

    async def work() -> None:
        group = Mixed(tmp_path, ours)
        acknowledged: dict[int, bytes] = {}
        try:
            await group.start(*IDS)
            async with DLedgerClient("g", group.peers, timeout_ms=30_000) as client:
                for one in IDS:
                    await hand_over(client, one)
                    answers = await asyncio.gather(*(client.append(b"%d " % n * n) for n in range(80)))
                    acknowledged |= {a.index: b"%d " % n * n for n, a in enumerate(answers)}
                    assert {answer.leader_id for answer in answers} == {one}
                    await group.append_with_java(f"s{one}", 30)
                away = next(one for one in IDS if one not in ours)
                await group.stop(away, kill=True)
                answer = await client.append(b"without one of Java's")
                await group.start(away)
                await group.stop("n2")
                answer = await client.append(b"without one of ours")
                await group.start("n2")
                acknowledged[answer.index] = b"without one of ours"
                last = await client.append(b"last")
                # The heartbeats and commits of a leader that is Java's come every second or two.
                for one in IDS:
                    while end_index(tmp_path / f"dledger-{one}") < last.index:
                        await asyncio.sleep(0.2)
        finally:
            for one in IDS:
                await group.stop(one)
        found = {one: entries_of(tmp_path / f"dledger-{one}") for one in IDS}
        assert [e[:7] for e in found["n0"]] == [e[:7] for e in found["n1"]] == [e[:7] for e in found["n2"]]
        bodies = {entry.index: entry.body for entry in found["n0"]}
        assert {index: bodies.get(index) for index in acknowledged} == acknowledged
        for one in ours:
            code, entries, summary = judge(tmp_path / f"dledger-{one}")
            assert (code, summary["complaints"], len(entries)) == (0, [], len(bodies))

    asyncio.run(asyncio.wait_for(work(), 150))
