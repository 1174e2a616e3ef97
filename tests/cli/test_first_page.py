"""README.md and docs/guide/store.md: every block runs as it is pasted, in order, each in its own process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyledger.servers.local.rocketmq import LocalBroker
from tests.cli.command_line import ENVIRONMENT
from tests.cli.test_docs import execute
from tests.support.source_tree import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def paste(text: str, folder: Path) -> str:
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env=ENVIRONMENT, check=False, text=True, timeout=120,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(240)
def test_the_blocks_of_the_first_pages_run_as_pasted(tmp_path: Path) -> None:
    said, programs = [], 0
    with LocalBroker(tmp_path / "node") as node:
        pages = (ROOT / "README.md", ROOT / "docs" / "guide" / "store.md")
        for kind, text in BLOCK.findall("".join(page.read_text() for page in pages)):
            if kind == "python" and "SparkSession" not in text:
                said.append(paste(text.replace("127.0.0.1:9876", node.address), tmp_path))
                programs += 1
            if kind == "sh":
                lines = [
                    line for line in text.splitlines() if re.search(r"^(?!pip ).*\bpyledger (?!serve)", line)
                ]
                said += [execute(line, tmp_path, node.address) for line in lines]
    assert programs >= 9
    whole = "".join(said)
    for wanted in ("A-1", "three apples", "fruit", "count_star()", "max(queueOffset)"):
        assert wanted in whole
    assert "rror" not in whole
