"""What a type checker tells the author of a program that uses the public API."""

import re

from mypy import api

from tests.support.source_tree import ROOT

PROGRAM = ROOT / "tests" / "user_program.py"
EXPECTED = re.compile(r"# E: ([\w-]+)$")
REPORTED = re.compile(r"user_program\.py:(\d+): error: .*\[([\w-]+)\]$")


def test_mypy_accepts_a_program_and_reports_misspelt_settings() -> None:
    lines = PROGRAM.read_text().splitlines()
    expected = {at: found[1] for at, line in enumerate(lines, 1) if (found := EXPECTED.search(line))}
    output, problems, _ = api.run(["--strict", "--no-error-summary", str(PROGRAM)])
    errors = [line for line in output.splitlines() if ": error:" in line]
    reported = {int(found[1]): found[2] for line in errors if (found := REPORTED.search(line))}
    assert not problems
    assert len(reported) == len(errors), output
    assert reported == expected, output
