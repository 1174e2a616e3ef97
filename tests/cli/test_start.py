"""Starting: fast, with help at every step."""

import subprocess
import sys

import pytest

from pyledger import __version__
from pyledger.cli.commands import COMMANDS
from tests.cli.command_line import ENVIRONMENT, pyledger, spawn

HEAVY = ("rich", "pyarrow", "pyspark", "lz4", "backports", "cffi", "asyncio", "pyledger._core")
# Runs commands, each given as words with commas between, and prints which heavy modules that imported.
PROBE = f"""
import sys
from pyledger.cli.process import run
for words in sys.argv[1:]:
    assert run(words.split(",")) == 0
sys.stderr.write("heavy:" + ",".join(name for name in {HEAVY!r} if name in sys.modules))
"""


def test_version() -> None:
    assert spawn("--version").out == f"pyledger {__version__}\n"
    assert pyledger("--version", "cat").out == f"pyledger {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    wanted = ["--version", "--help", *(f"{name},--help" for name in COMMANDS)]
    found = subprocess.run(
        [sys.executable, "-c", PROBE, *wanted], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert found.stderr == "heavy:"
    assert found.stdout.count("Usage: ") == 1 + len(COMMANDS)


def test_version_does_not_import_click() -> None:
    code = "import sys; sys.argv=['p','--version']\nfrom pyledger.cli.__main__ import main\n"
    code += "try: main()\nfinally: assert 'click' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT, capture_output=True)


def test_alone_it_names_five_commands() -> None:
    found = pyledger()
    assert found.code == 0
    named = [line.split()[1] for line in found.lines if line.startswith("  pyledger ")]
    assert len(named) == 5
    assert set(named) < set(COMMANDS)


def test_help_lists_every_command() -> None:
    out = pyledger("-h").out
    assert all(f"\n  {name} " in out for name in COMMANDS)


def test_a_mistyped_command_names_the_right_one() -> None:
    found = pyledger("vrify", "store")
    assert found.code == 2
    assert "'verify'" in found.err


def test_completion_offers_commands_and_options() -> None:
    def complete(words: str, number: str) -> str:
        variables = {"_PYLEDGER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": number}
        return subprocess.run(
            [sys.executable, "-m", "pyledger"],
            env=ENVIRONMENT | variables, capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip

    assert complete("pyledger ver", "1") == "plain,verify\n"
    assert complete("pyledger cat --bo", "2") == "plain,--body\n"
    assert "plain,sha256\n" in complete("pyledger cat --body ", "3")


def test_a_bug_is_one_line_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("three by none")

    monkeypatch.setattr("pyledger.store.reading.reader.StoreReader.open", broken)
    found = pyledger("cat", "store")
    assert found.code == 70
    assert found.err.count("\n") == 1
    assert "this is a bug of PyLedger: ZeroDivisionError: three by none (test_start.py:" in found.err
