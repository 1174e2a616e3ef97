"""`pyledger autorecovery`, and what `pyledger ledger` and `cluster` say of missing copies."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyledger.bookkeeper import LedgerClient
from pyledger.servers.local.bookies import METADATA_FILE
from tests.cli.command_line import COMMAND, ENVIRONMENT, pyledger
from tests.servers.bookkeeper.bookie_peer import PATIENT

PAYLOADS = [b"%d" % at for at in range(50)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that answers late is not lost."""
    for name in ("add_timeout_ms", "read_timeout_ms"):
        monkeypatch.setitem(ENVIRONMENT, f"PYLEDGER_BOOKKEEPER_{name.upper()}", str(getattr(PATIENT, name)))


@contextmanager
def process(*words: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that serves, and the line that says that it is ready."""
    with subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
        cwd=cwd,
    ) as made:
        assert made.stdout is not None
        try:
            yield made, made.stdout.readline().strip()
        finally:
            made.terminate()
            made.wait()


def test_a_bookie_is_taken_out(tmp_path: Path) -> None:
    """Three bookies of one process, which make copies too, and a fourth that is stopped and given up."""
    address = f"sqlite:{tmp_path / METADATA_FILE}"
    own = (str(tmp_path / "four"), "--metadata", address, "--listen", "127.0.0.1:0", "--id", "four")
    with process("bookie", "serve", str(tmp_path), "--dev", "3") as (_, line):
        assert line == f"READY bookies {address}"
        assert pyledger("autorecovery", "disable", "-m", address).err == "disabled\n"
        hit, ledgers = [], 0
        with process("bookie", "serve", *own), LedgerClient(address, config=PATIENT) as client:
            while not hit:
                with client.create(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2) as writer:
                    writer.add_many(PAYLOADS)
                ledgers += 1
                if "four" in writer.metadata.segments[0].ensemble:
                    hit.append(writer.ledger_id)
            found = pyledger("autorecovery", "decommission", "-m", address, "four")
            assert (found.code, "stop that one" in found.err) == (1, True)
        found = pyledger("ledger", "check", "-m", address, "--json", "--mark", "--every-entry")
        assert found.code == 1
        *fragments, summary = found.json
        assert summary == {"kind": "summary", "ledgers": ledgers, "underReplicated": 1}
        assert [(one["ledgerId"], one["missing"]) for one in fragments] == [
            (hit[0], {"four": "BOOKIE_NOT_AVAILABLE"})
        ]
        marked = pyledger("ledger", "under-replicated", "-m", address, "--json").json
        assert [(one["ledgerId"], one["missing"]) for one in marked] == [(hit[0], ["four"])]
        assert "1 ledger under-replicated" in pyledger("cluster", "status", address).err
        rows = pyledger("cluster", "status", address, "--json").json
        assert {one["bookieId"]: one["underReplicatedLedgers"] for one in rows}["four"] == 1
        assert pyledger("autorecovery", "decommission", "-m", address, "four").code == 1
        assert pyledger("autorecovery", "enable", "-m", address).err == "enabled\n"
        found = pyledger("autorecovery", "decommission", "-m", address, "four", "--forget")
        assert (found.code, found.err.splitlines()[-1].endswith("four is forgotten")) == (0, True)
        assert pyledger("ledger", "check", "-m", address).code == 0
        while pyledger("ledger", "whoami", "-m", address).out != "bookies\n":
            pass
        states = pyledger("cluster", "status", address, "--json").json
        assert [one["bookieId"] for one in states] == ["bookie-1", "bookie-2", "bookie-3"]


def test_a_bookie_of_bookkeepers_own_file(tmp_path: Path) -> None:
    """Folders, cluster, port and name are those of bk_server.conf; what only tunes is named and ignored."""
    address = f"sqlite:{tmp_path / METADATA_FILE}"
    assert pyledger("cluster", "format", address).code == 0
    conf = tmp_path / "bk_server.conf"
    disks = f"{tmp_path / 'd1'},{tmp_path / 'd2'}"
    conf.write_text(
        f"bookiePort=0\njournalDirectory={tmp_path / 'txn'}\nledgerDirectories={disks}\n"
        f"metadataServiceUri={address}\nbookieId=named\nautoRecoveryDaemonEnabled=false\nzkTimeout=10000\n"
    )
    with process("bookie", "serve", "-c", str(conf)) as (_, line):
        assert line.startswith("READY bookie 127.0.0.1:")
        states = pyledger("cluster", "status", address, "--json").json
        assert [one["bookieId"] for one in states] == ["named"]
    assert all((tmp_path / name / "current" / "VERSION").exists() for name in ("txn", "d1", "d2"))
    conf.write_text(f"metadataServiceUri={address}\nindexDirectories=/fast\n")
    found = pyledger("bookie", "serve", str(tmp_path / "b"), "-c", conf)
    assert (found.code, "indexes are stored in ledgerDirectories" in found.err) == (2, True)
    conf.write_text(f"metadataServiceUri={address}\n")
    found = pyledger("bookie", "serve", "-c", conf)
    assert (found.code, "give FOLDER" in found.err) == (2, True)


def test_a_lost_bookie_is_recovered_by_hand(tmp_path: Path) -> None:
    """No autorecovery runs: the command re-replicates the ledgers."""
    address = f"sqlite:{tmp_path / METADATA_FILE}"
    own = (str(tmp_path / "four"), "--metadata", address, "--listen", "127.0.0.1:0", "--id", "four")
    with process("bookie", "serve", str(tmp_path), "--dev", "3"):
        assert pyledger("autorecovery", "disable", "-m", address).code == 0
        with process("bookie", "serve", *own), LedgerClient(address, config=PATIENT) as client:
            while True:
                with client.create(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2) as writer:
                    writer.add_many(PAYLOADS)
                if "four" in writer.metadata.segments[0].ensemble:
                    break
            found = pyledger("bookie", "recover", "-m", address, "four")
            assert (found.code, "stop that one" in found.err) == (1, True)
        ledger_id = writer.ledger_id
        found = pyledger("bookie", "recover", "-m", address, "--dry-run", "--json", "four")
        ledger = {"kind": "ledger", "ledgerId": ledger_id, "outcome": "underReplicated", "fragments": 1}
        result = {"closed": False, "copiedBytes": 0, "problem": None}
        assert (found.code, found.json[0]) == (1, ledger | result)
        counts = {"whole": 0, "replicated": 0, "underReplicated": 1, "failed": 0}
        assert found.json[1] == {"kind": "summary", **counts, "forgotten": False}
        found = pyledger("bookie", "recover", "-m", address, "--forget", "four")
        assert (found.code, found.out.split()[:2]) == (0, [str(ledger_id), "replicated"])
        assert found.err.splitlines() == ["1 ledger with replicas there; 1 replicated", "forgotten: four"]
        assert pyledger("ledger", "check", "-m", address, "--every-entry").code == 0
        found = pyledger("bookie", "recover", "-m", address, "four")
        assert (found.code, "no bookie 'four'" in found.err) == (2, True)


def test_bookies_for_development(tmp_path: Path) -> None:
    with process("bookie", "serve", "--dev", "2", cwd=tmp_path) as (_, line):
        assert line == "READY bookies sqlite:pyledger-bookies/metadata.db"
        address = f"sqlite:{tmp_path}/pyledger-bookies/metadata.db"
        rows = pyledger("cluster", "status", address, "--json").json
        assert [(one["bookieId"], one["state"]) for one in rows] == [
            ("bookie-1", "writable"),
            ("bookie-2", "writable"),
        ]
    found = pyledger("bookie")
    assert (found.code, "Usage: pyledger bookie" in found.err) == (2, True)
    assert pyledger("bookie", "serve", "--dev", "2", "--journal", "x").code == 2


def test_a_process_of_its_own(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / METADATA_FILE}"
    assert pyledger("cluster", "format", address).code == 0
    with process("autorecovery", "serve", "-m", address, "--id", "keeper") as (made, line):
        assert line == "READY autorecovery keeper"
        while pyledger("ledger", "whoami", "-m", address).out != "keeper\n":
            pass
        made.terminate()
        assert made.wait() == 0
    assert pyledger("ledger", "whoami", "-m", address).out == "no auditor\n"


def test_disabled_and_unknown(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / METADATA_FILE}"
    assert pyledger("cluster", "format", address).code == 0
    assert pyledger("autorecovery", "disable", "-m", address).err == "disabled\n"
    assert pyledger("autorecovery", "disable", "-m", address).err == "already disabled\n"
    found = pyledger("autorecovery", "decommission", "-m", address, "b1")
    assert (found.code, "autorecovery enable" in found.err) == (1, True)
    assert pyledger("ledger", "whoami", "-m", address, "--json").json == [{"auditor": None, "enabled": False}]
    assert pyledger("autorecovery", "enable", "-m", address).err == "enabled\n"
    for more in ((), ("--forget",)):
        found = pyledger("autorecovery", "decommission", "-m", address, "b1", *more)
        assert (found.code, "no bookie 'b1'" in found.err) == (2, True)
    assert pyledger("autorecovery", "delay", "-m", address).out == "0 s\n"
    assert pyledger("autorecovery", "delay", "-m", address, "7").out == "7 s\n"
    assert pyledger("autorecovery", "delay", "-m", address).out == "7 s\n"
