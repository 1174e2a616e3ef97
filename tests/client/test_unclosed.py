"""Programs that end without closing their producer: sends complete, or the program says that they did not."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyledger.testing import LocalBroker
from tests.support.source_tree import ROOT

BLOCKING = """
import sys
from pyledger.client import Message, Producer
producer = Producer("G", sys.argv[1])
producer.start()
for number in range(500):
    producer.submit(Message("T", b"%d" % number))
"""
FAILING = BLOCKING + "raise SystemExit('the program failed')"
ASYNC = """
import asyncio, sys
from pyledger.client import AsyncProducer, Message
async def main():
    producer = AsyncProducer("G", sys.argv[1])
    await producer.start()
    for number in range(500):
        producer.submit(Message("T", b"%d" % number))
asyncio.run(main())
"""
FORKED = BLOCKING + "import os; os.waitpid(os.fork() or sys.exit(), 0)"


def run(program: str, address: str) -> tuple[int, str]:
    """Return the exit code and stderr of a program."""
    found = subprocess.run(
        [sys.executable, "-c", program, address],
        capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT / "src")}, check=False,
    )  # fmt: skip
    return found.returncode, found.stderr


@pytest.mark.parametrize("program", [BLOCKING, FAILING, FORKED], ids=["plain", "failing", "forked"])
def test_submitted_messages_are_sent_at_the_end_of_a_program(program: str, tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        code, err = run(program, broker.address)
        assert (code, err) == ((1, "the program failed\n") if program is FAILING else (0, ""))
        assert sorted(broker.bodies("T"), key=int) == [b"%d" % number for number in range(500)]


def test_messages_that_cannot_be_sent_any_more_are_counted(tmp_path: Path) -> None:
    _, err = run(BLOCKING, "127.0.0.1:1")
    assert "producer not closed, messages may be lost group=G messages=500" in err
    assert "Traceback" not in err
    with LocalBroker(tmp_path) as broker:
        _, err = run(ASYNC, broker.address)
    assert "producer not closed, messages may be lost group=G messages=500" in err
