"""The programs of docs/guide/spark.md and README.md, run in order in one session, print what they state."""

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyledger.model.message import Message
from pyledger.servers.local.rocketmq import LocalBroker
from pyledger.store.messages.message_store import MessageStore
from tests.support.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "guide" / "spark.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = {"sh"}
"""What installs, or starts a cluster: tests/spark/test_cluster.py and CI do those."""


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_page_shows_what_happens(session: "SparkSession", tmp_path: Path) -> None:
    blocks = [(kind, text) for kind, text in BLOCK.findall(PAGE.read_text()) if kind not in NOT_RUN]
    assert {kind for kind, _ in blocks} == {"python", "sql", "text"}
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    with LocalBroker(tmp_path / "node") as node:
        for number, (kind, text) in enumerate(blocks):
            here = text.replace("/data", str(tmp_path)).replace("127.0.0.1:9876", node.address)
            if kind == "text":
                assert plain(printed) == plain(text), f"block {number}:\n{blocks[number - 1][1]}"
            elif kind == "sql":
                session.sql(here)
            else:
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    exec(compile(here, f"block {number} of docs/guide/spark.md", "exec"), names)
                printed = said.getvalue()
                followed = number + 1 < len(blocks) and blocks[number + 1][0] == "text"
                assert followed or not printed, f"the page does not show:\n{printed}"
    assert names["session"] is not None
    assert sum(kind == "text" for kind, _ in blocks) >= 11


def test_the_spark_program_of_the_first_page_runs(session: "SparkSession", tmp_path: Path) -> None:
    """The others: `tests/cli/test_first_page.py`."""
    with MessageStore.open(tmp_path / "my-store", mapped_file_size_bytes=1 << 20) as store:
        store.put(Message("orders", b"three apples", keys="A-1"))
    [text] = [
        text for kind, text in BLOCK.findall((ROOT / "README.md").read_text()) if "SparkSession" in text
    ]
    # The session of these tests has another working folder.
    here = text.replace('load("my-store")', f'load("{tmp_path}/my-store")')
    names: dict[str, Any] = {"__name__": "__main__"}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(here, "README.md", "exec"), names)
    assert "A-1" in said.getvalue()
    assert names["session"] is not None
