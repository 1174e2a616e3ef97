"""Members as processes: no acknowledged entry is lost when each leader is killed with SIGKILL."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyledger.client.dledger import DLedgerClient
from pyledger.errors import CorruptRecordError, OutcomeUnknownError, StoreFormatError
from pyledger.store.dledger.reader import DLedgerReader
from tests.cli.command_line import ENVIRONMENT, pyledger
from tests.servers.dledger.group import TIMEOUT_MS, append_surely, on_a_loop, until
from tests.servers.dledger.test_group import entries_of
from tests.support.ports import free_ports

ENTRIES = 40


class Processes:
    """`pyledger dledger node` for each member."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(free_ports(size)))
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.settings = folder / "dledger.toml"
        # A loaded machine may keep a leader from running for longer than our defaults allow.
        self.settings.write_text("[dledger]\nheart_beat_time_interval_ms = 600\nheart_beat_jitter_ms = 200\n")

    def start(self, one: str) -> None:
        command = [sys.executable, "-m", "pyledger", "dledger", "node", "--group", "g", "--id", one]
        command += ["--peers", self.peers, "--store", str(self.folder), "--config", str(self.settings)]
        with (self.folder / f"{one}.log").open("a") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT
            )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("READY dledger ")
        self.running[one] = process

    def agree(self) -> bool:
        """Return whether the folders of running members are equal; not while one is being truncated."""
        found = set()
        for one in self.running:
            try:
                with DLedgerReader.open(self.folder / f"dledger-{one}") as reader:
                    found.add(tuple(reader.entries()))
            except (CorruptRecordError, StoreFormatError):
                return False
        return len(found) == 1

    def end(self, one: str, number: signal.Signals) -> None:
        process = self.running.pop(one)
        process.send_signal(number)
        process.wait(100)
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_leaders_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    group = Processes(tmp_path, 3)

    async def work() -> None:
        acknowledged: dict[int, bytes] = {}

        async def append(client: DLedgerClient, body: bytes) -> None:
            try:
                acknowledged[(await client.append(body)).index] = body
            except OutcomeUnknownError:
                return

        async def insist(client: DLedgerClient, body: bytes) -> None:
            acknowledged[await append_surely(client, body)] = body

        for one in ("n0", "n1", "n2"):
            group.start(one)
        async with DLedgerClient("g", group.peers, timeout_ms=TIMEOUT_MS) as client:
            await insist(client, b"first")
            for round_ in range(2):
                leader = client.leader or "n0"
                appends = [
                    asyncio.ensure_future(append(client, b"%d %d" % (round_, n))) for n in range(ENTRIES)
                ]
                await asyncio.sleep(0)
                group.end(leader, signal.SIGKILL)
                await asyncio.gather(*appends)
                await insist(client, b"after %d" % round_)
                group.start(leader)
            await insist(client, b"last")
        # A member that was killed has entries of its own until the leader has compared and cut them.
        await until(group.agree)
        for one in ("n0", "n1", "n2"):
            group.end(one, signal.SIGTERM)
        for one in ("n0", "n1", "n2"):
            bodies = {entry.index: entry.body for entry in entries_of(tmp_path / f"dledger-{one}")}
            assert {index: bodies.get(index) for index in acknowledged} == acknowledged, one
        assert {b"after 0", b"after 1", b"last"} <= set(acknowledged.values())

    try:
        on_a_loop(work)
    finally:
        for one in list(group.running):
            group.end(one, signal.SIGKILL)


def test_commands_send_requests_to_a_running_group(tmp_path: Path) -> None:
    group = Processes(tmp_path, 1)
    group.start("n0")
    options = ("--group", "g", "--peers", group.peers)
    try:
        done = pyledger("dledger", "append", *options, "Hello", "world", "--json")
        assert done.code == 0, done.err
        assert [line["leaderId"] for line in done.json] == ["n0", "n0"]
        index = done.json[0]["index"]
        found = pyledger("dledger", "get", *options, str(index), "--json").json[0]
        assert (found["body"], found["index"], found["term"]) == ("Hello", index, done.json[0]["term"])
        assert pyledger("dledger", "get", *options, "999").code == 1
        (line,) = pyledger("dledger", "status", *options, "--json").json
        assert (line["id"], line["leaderId"], line["term"]) == ("n0", "n0", found["term"])
        measured = pyledger("dledger", "bench", *options, "--seconds", "0.2", "--per", "10", "--json").json[0]
        assert measured["entries"] >= 10
        rejected = pyledger("dledger", "transfer", *options, "nobody")
        assert (rejected.code, "use the ids" in rejected.err) == (1, True)
        assert f"n0 leads in term {found['term']}" in pyledger("dledger", "transfer", *options, "n0").err
        elsewhere = ("--group", "other", *options[2:])
        assert "in another group" in pyledger("dledger", "append", *elsewhere, "x").err
        assert "in another group" in pyledger("dledger", "status", *elsewhere).out
        (line,) = pyledger("dledger", "status", *elsewhere, "--json").json
        assert (line["leaderId"], line["term"]) == (None, None)
    finally:
        group.end("n0", signal.SIGTERM)
    assert pyledger("dledger", "append", *options, "--timeout-ms", "300", "x").code == 3
    assert "does not answer" in pyledger("dledger", "status", *options).out
    bodies = [entry.body for entry in entries_of(tmp_path / "dledger-n0") if entry.body]
    assert bodies[:2] == [b"Hello", b"world"]


def test_a_member_that_lost_acknowledged_entries_does_not_vote_and_reports_it(tmp_path: Path) -> None:
    """n2 is down while n0 and n1 acknowledge an entry; they are killed, and the disk of n1 damages it."""
    group = Processes(tmp_path, 3)
    options = ("--group", "g", "--peers", group.peers)
    try:
        group.start("n0")
        group.start("n1")
        done = pyledger(
            "dledger", "append", *options, "--timeout-ms", str(TIMEOUT_MS), "first", "last", "--json"
        )
        assert done.code == 0, done.err
        last = done.json[1]
        for one in ("n0", "n1"):
            group.end(one, signal.SIGKILL)
        spoilt = tmp_path / "dledger-n1/data/00000000000000000000"
        with spoilt.open("r+b") as file:
            file.seek(last["pos"] + 48)
            file.write(b"L")
        found = pyledger("dledger", "cat", str(tmp_path / "dledger-n1"), "--json")
        assert (found.code, "was durable here" in found.err) == (1, True)
        assert [line["index"] for line in found.json] == list(range(last["index"]))
        group.start("n1")
        assert "was durable here" in (tmp_path / "n1.log").read_text()
        group.start("n2")
        said = pyledger("dledger", "status", *options)
        assert said.code == 1
        assert "n1 cannot vote" in said.err
        assert "it may have lost entries" in said.out
        group.start("n0")
        again = pyledger("dledger", "append", *options, "--timeout-ms", str(TIMEOUT_MS), "more", "--json")
        assert again.json[0]["index"] > last["index"]
        assert pyledger("dledger", "get", *options, str(last["index"]), "--json").json[0]["body"] == "last"

        def can_vote() -> bool:
            said = pyledger("dledger", "status", *options, "--json").json
            return [line["id"] for line in said if line["cannotVote"] is None] == ["n0", "n1", "n2"]

        while not can_vote():  # the leader has to find n1 first
            pass
    finally:
        for one in list(group.running):
            group.end(one, signal.SIGKILL)


def test_a_member_without_its_term_file_starts_after_a_repair_with_the_terms_of_others(
    tmp_path: Path,
) -> None:
    group = Processes(tmp_path, 3)
    options = ("--group", "g", "--peers", group.peers)
    try:
        for one in ("n0", "n1", "n2"):
            group.start(one)
        done = pyledger("dledger", "append", *options, "--timeout-ms", str(TIMEOUT_MS), "first", "--json")
        assert done.code == 0, done.err
        group.end("n2", signal.SIGTERM)
        folder = tmp_path / "dledger-n2"
        (folder / "currterm").write_bytes(bytes(3))
        node = ("dledger", "node", "--id", "n2", *options, "--store", str(tmp_path))
        rejected = pyledger(*node)
        assert (rejected.code, "might vote twice" in rejected.err) == (3, True)
        assert pyledger("dledger", "repair", str(folder)).code == 2
        group.end("n1", signal.SIGTERM)
        rejected = pyledger("dledger", "repair", str(folder), *options)
        assert (rejected.code, "n1 did not report its term" in rejected.err) == (3, True)
        group.start("n1")
        terms = [
            line["term"] for line in pyledger("dledger", "status", *options, "--json").json if line["term"]
        ]
        (step,) = pyledger("dledger", "repair", str(folder), *options, "--json").json
        assert step["action"] == "set-term"
        assert int((folder / "currterm").read_text().split("currTerm=")[1]) > max(terms)
        group.start("n2")
        append = ("dledger", "append", *options, "--timeout-ms", str(TIMEOUT_MS), "second")
        done = pyledger(*append)
        while "is not known" in done.err:  # n2 comes with a term of its own, and the leader makes way
            done = pyledger(*append)
        assert done.code == 0, done.err
    finally:
        for one in list(group.running):
            group.end(one, signal.SIGKILL)
