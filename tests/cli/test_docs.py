"""docs/reference/cli.md: every command in it is run, in the order of the page, and says what the page says.

In what is expected, `…` stands for any text of a line. After a deliberate change
`PYTHONPATH=src python -m tests.cli.test_docs` writes the new output into the page; read the diff.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pyledger.cli.commands import COMMANDS
from pyledger.servers.local.rocketmq import LocalBroker
from tests.cli.command_line import ENVIRONMENT, own_case
from tests.golden.dledger_folders import golden_node
from tests.golden.ledger_recordings import unpack_bookie
from tests.support.source_tree import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNENDING = {"broker", "serve"}
"""Commands that run until they are told to end, and have tests of their own."""
FUNCTION = f'pyledger() {{ "{sys.executable}" -m pyledger "$@"; }}\n'


def prepare(folder: Path) -> None:
    """What the page presumes: a store, some rows to write, one store that has crashed, one of many files."""
    own_case("flights-5").unpack(folder)
    (folder / "flights.jsonl").write_text(
        '{"carrier":"UA","tailnum":"N14228","dest":"IAH","delay":2}\n'
        '{"carrier":"AA","tailnum":"N619AA","dest":"MIA","delay":33}\n'
        '{"carrier":"UA","tailnum":"N39463","dest":"ORD","delay":-4}\n'
    )
    own_case("torn-zero-5").unpack(folder / "unpacked")
    (folder / "unpacked" / "store").rename(folder / "crashed")
    own_case("rolled-5").unpack(folder / "unpacked")
    (folder / "unpacked" / "store").rename(folder / "rolled")
    shutil.copytree(golden_node("filler").path, folder / "dledger-n0")
    unpack_bookie("sorted-clean", folder / "bookie-1")


def answers(block: str) -> list[tuple[str, str]]:
    """Commands of a block, each with the output that stands under it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def execute(line: str, folder: Path, name_server: str) -> str:
    """Output and talk of one command line, as a terminal without drawing would show them."""
    environment = {**ENVIRONMENT, "NAMESRV_ADDR": name_server}
    found = subprocess.run(
        ["bash", "-c", FUNCTION + line],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment, check=False,
        timeout=60,
    )  # fmt: skip
    return found.stdout


def agrees(wanted: str, got: str) -> bool:
    pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", wanted))
    return re.fullmatch(pattern, got) is not None


def test_the_page_shows_what_happens(tmp_path: Path) -> None:
    prepare(tmp_path)
    shown = [answer for block in BLOCK.findall(PAGE.read_text()) for answer in answers(block)]
    with LocalBroker(tmp_path / "node") as node:
        for line, wanted in shown:
            if "| jq " in line and shutil.which("jq") is None:
                continue
            got = execute(line, tmp_path, node.address)
            assert agrees(wanted, got), f"$ {line}\n{got}"
    run = " ".join(line for line, _ in shown)
    assert all(f"pyledger {name} " in run for name in set(COMMANDS) - UNENDING)


def test_the_page_names_every_command_and_exit_code() -> None:
    text = PAGE.read_text()
    assert all(f"\n### {name}\n" in text for name in COMMANDS)
    assert all(f"| {code} |" in text for code in (0, 1, 2, 3, 70, 130))


def rewrite() -> None:
    """Write what the commands say now into the page, where it does not agree."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        prepare(Path(place))
        node = stack.enter_context(LocalBroker(Path(place) / "node"))

        def renew(block: re.Match[str]) -> str:
            lines = []
            for line, wanted in answers(block[1]):
                got = execute(line, Path(place), node.address)
                lines.append(f"$ {line}\n{wanted if agrees(wanted, got) else got}")
            return f"```console\n{''.join(lines)}```"

        PAGE.write_text(BLOCK.sub(renew, PAGE.read_text()))


if __name__ == "__main__":
    os.chdir(ROOT)
    rewrite()
