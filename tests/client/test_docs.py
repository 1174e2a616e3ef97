"""docs/guide/clients.md: its programs run, one after the other, against one broker."""

import re
from pathlib import Path
from typing import Any

import pytest

from pyledger.servers.local.rocketmq import LocalBroker
from tests.support.source_tree import ROOT

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(300)
def test_programs_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "guide" / "clients.md").read_text()
    programs = PROGRAM.findall(page)
    with LocalBroker(tmp_path / "store") as node:
        for number, program in enumerate(programs):
            names: dict[str, Any] = {"__name__": "__main__"}
            code = compile(program.replace("127.0.0.1:9876", node.address), f"program {number}", "exec")
            exec(code, names)
        assert b"one pizza" in node.bodies("Orders")
        assert b"10 EUR" in node.bodies("Bookings")
    assert len(programs) == 8
    assert "SEND_OK" in capsys.readouterr().out
