"""What judges benchmark results: the ratio table, and the table of the documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import __main__, compare

FACTS = {"cpu": "x", "cores": 2, "python": "3.11", "file_system": "ext4", "build": "release", "scale": "full"}


def save(path: Path, **cases: dict[str, Any]) -> str:
    """A results file with cases by name."""
    found = [
        {"fullname": name, "stats": {"min": facts.pop("seconds", 1.0)}, "extra_info": FACTS | facts}
        for name, facts in cases.items()
    ]
    path.write_text(json.dumps({"benchmarks": found, "datetime": "2024-05-06T07:08:09+00:00"}))
    return str(path)


def test_ratios_are_of_times_and_a_bound_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = save(tmp_path / "a", by_time={"seconds": 2.0}, by_rate={"per_second": 100.0}, old={})
    after = save(tmp_path / "b", by_time={"seconds": 1.0}, by_rate={"per_second": 50.0}, new={})
    assert compare.main([before, after]) == 0
    assert compare.main([before, after, "--bound", "2.1"]) == 0
    capsys.readouterr()
    assert compare.main([before, after, "--bound", "1.9"]) == 1
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said == [["0.50", "by_time"], ["2.00", "SLOWER", "by_rate"], ["new", "new"], ["gone", "old"]]


def test_runs_of_different_machines_are_not_compared(tmp_path: Path) -> None:
    before, after = save(tmp_path / "a", case={}), save(tmp_path / "b", case={"cores": 64})
    assert compare.main([before, after]) == 2


def consumed(*rates: float) -> __main__.Results:
    name = "benchmarks/system/bench_consume.py::bench_objects"
    return __main__.Results(
        [{"benchmarks": [{"fullname": name, "extra_info": {"per_second": rate}}]} for rate in rates]
    )


def test_every_row_has_its_figure_or_not_measured() -> None:
    written = list(__main__.lines(__main__.Results([]), "2024-05-06", {}))
    assert len(written) == len(__main__.ROWS)
    assert all(line.endswith(" |  | not measured |  |") for line in written)
    written = list(__main__.lines(consumed(9e5, 2.5e6), "2024-05-06", {}))
    (line,) = (line for line in written if "not measured" not in line)
    assert line == "| — as message objects | ≥ 1 M/s | yes | 2.5 M/s | 2024-05-06 |"
    assert sum("**no**" in line for line in __main__.lines(consumed(9e5), "2024-05-06", {})) == 1


def test_a_row_that_was_not_measured_again_keeps_its_day() -> None:
    old = "\n".join(__main__.lines(consumed(2e6), "2023-01-02", {}))
    known = __main__.known_lines(old)
    assert list(known) == [("consume 32 a call, as ranges", "— as message objects")]
    assert "\n".join(__main__.lines(__main__.Results([]), "2024-05-06", known)) == old
    assert "2 M/s | 2024-05-06 |" in "\n".join(__main__.lines(consumed(2e6), "2024-05-06", known))
