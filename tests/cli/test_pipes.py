"""Ends that come from outside: a reader that has seen enough, a full disk, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, into_closed_pipe, on_terminal, own_case, pyledger


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_case("flights-5").unpack(tmp_path_factory.mktemp("flights"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["cat", "--help"],
        [],
        ["--version"],
        ["info", "STORE"],
        ["cat", "STORE"],
        ["cat", "STORE", "--json", "--tail", "1"],
        ["grep", "LAX", "STORE"],
        ["query", "STORE", "--topic", "flights", "--key", "N14228"],
        ["verify", "STORE", "--json"],
        ["repair", "STORE", "--dry-run", "--json"],
        ["dump", "LOG"],
    ],
)
def test_a_closed_pipe_is_no_error(arguments: list[str], flights: Path) -> None:
    log = flights / "commitlog" / ("0" * 20)
    places: dict[str, str | Path] = {"STORE": flights, "LOG": log}
    assert into_closed_pipe(*(places.get(word, word) for word in arguments)) == (0, b"")


def test_the_first_line_goes_out_and_the_rest_is_let_go(flights: Path) -> None:
    line = " ".join([*COMMAND, "cat", str(flights), "--json"])
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{line} | head -1"],
        env=ENVIRONMENT, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout.count(b"\n") == 1
    assert found.stderr == b""


def test_a_full_disk_is_told(flights: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(
            [*COMMAND, "cat", flights],
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            timeout=60,
            check=False,
        )
    assert found.returncode == 3
    assert found.stderr.count(b"\n") == 1
    assert b"No space left on device" in found.stderr


def test_ctrl_c_ends_without_a_trace(flights: Path) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "cat", str(flights), "--json"], stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        output.readline()  # it runs, and stops soon at a pipe that is full
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


# Sends SIGINT within an import, from where KeyboardInterrupt is lost, as in callbacks of importlib.
INTERRUPTED_IMPORT = """
import signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                pass
wanted, sys.argv = sys.argv[1], ["pyledger", *sys.argv[2:]]
from pyledger.cli.__main__ import main
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize(
    "module", ["pyledger.cli.process", "click", "pyledger.cli.store.cat", "pyledger._core"]
)
def test_ctrl_c_within_an_import_is_not_lost(flights: Path, module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, "cat", flights],
        env=ENVIRONMENT, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


def test_ctrl_c_behind_the_command_leaves_no_trace() -> None:
    code = "import atexit, signal, sys; atexit.register(signal.raise_signal, signal.SIGINT)\n"
    code += "from pyledger.cli.__main__ import main; sys.argv = ['pyledger', '--version']; main()"
    found = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, timeout=60, check=False
    )
    assert (found.returncode, found.stderr) == (-signal.SIGINT, b""), "a shell calls that 130 too"


def without(streams: str, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command with standard streams that are closed, by their numbers."""
    closing = " ".join(f"{number}>&-" for number in streams)
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {closing}', "bash", *COMMAND, *arguments],
        env=ENVIRONMENT, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("streams", ["0", "1", "2", "01", "02", "12", "012"])
def test_closed_streams_change_nothing_else(tmp_path: Path, streams: str) -> None:
    """Messages are stored once, and what is printed for the user goes into no file of the store."""
    store, lines = tmp_path / "store", tmp_path / "lines.jsonl"
    lines.write_text('{"id": 1}\n{"id": 2}\n')
    assert without(streams, "write", store, "--topic", "T", lines).returncode == 0
    assert pyledger("verify", store).code == 0
    assert len(pyledger("cat", store, "--json").json) == 2
    missing = without(streams, "cat", tmp_path / "none")
    assert missing.returncode == 3
    assert b"Traceback" not in missing.stderr
    assert without(streams, "cat", store).returncode == 0


@pytest.mark.parametrize("streams", ["0", "2", "02"])
def test_a_server_starts_with_closed_streams(tmp_path: Path, streams: str) -> None:
    closing = " ".join(f"{number}>&-" for number in streams)
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" {closing}', "bash", *COMMAND, "namesrv", "--listen", "127.0.0.1:0"],
        env=ENVIRONMENT, cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"READY namesrv")
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_tables_are_drawn_on_a_terminal_only(flights: Path) -> None:
    shown = on_terminal("info", flights)
    assert "\u2500\u2500" in shown
    assert "20,000" in shown
    assert "\x1b[" not in on_terminal("info", flights, NO_COLOR="1").replace("\x1b[1m", "").replace(
        "\x1b[0m", ""
    )


def test_files_are_packed_though_nobody_reads_of_it(tmp_path: Path) -> None:
    """A closed pipe ends what only tells; what changes something is done to its end."""
    store, lines = tmp_path / "store", tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": "x" * 900}) + "\n" for _ in range(40)))
    assert pyledger("write", store, "--topic", "T", lines, "--set", "mappedFileSizeCommitLog=8KiB").code == 0
    sealed = len(list((store / "commitlog").iterdir())) - 1
    assert sealed > 2
    assert into_closed_pipe("archive", store, "--older-than", "0s", "--json") == (0, b"")
    assert pyledger("info", store, "--json").json[0]["archivedFiles"] == sealed
