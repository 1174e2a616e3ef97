"""What the rules look at: the files of the project, parsed once."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the project: git's list where there is a repository, else all of the source tree."""
    git = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode == 0 and git.stdout:
        return tuple(p for line in git.stdout.splitlines() if (p := ROOT / line).is_file())
    skipped = {".venv", "build", "dist", "__pycache__", "target"}
    return tuple(p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.relative_to(ROOT).parts))


def files(*suffixes: str, under: str = "") -> Iterator[Path]:
    return (p for p in tracked() if p.suffix in suffixes and p.is_relative_to(ROOT / under))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name_of(path))


@cache
def modules() -> dict[str, Path]:
    """Our modules by dotted name, `__init__` included."""
    found = {}
    for root in (ROOT / "src", ROOT / "spark_ext"):
        for path in files(".py", under=str(root.relative_to(ROOT))):
            found[".".join(path.relative_to(root).with_suffix("").parts)] = path
    return found


def check(problems: Iterator[str], rule: str) -> None:
    found = list(problems)
    assert not found, rule + "\n  " + "\n  ".join(found)
