"""Print the figures of the code as the rows of the table in ARCHITECTURE.md, and write them there.

`--build` also builds the native module in a scratch folder, and prints its time and memory; it takes minutes.
"""

import argparse
import ast
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "ARCHITECTURE.md"
TABLE = re.compile(r"(<!-- measured: tools/measure_house.py -->\n).*?(<!-- end -->)", re.DOTALL)
PRODUCT = ("src", "spark_ext")
BEFORE = {
    "lines of the product without the stub": "92,700",
    "files in the largest folder": "76",
    "folders with more than 20 files": "8",
    "import paths in README, docs and examples": "15",
    "keyword arguments of type `object` or `Any` in signatures": "33",
    "lines of the synchronous clients written by hand": "647",
    "docstrings that begin with *Who*": "129",
    "uses of retired words in code, in documents": "8,155, 1,431",
}
"""Figures of the tree before its order by layer and domain; the words were counted by other patterns then."""


def sources(*suffixes: str, under: tuple[str, ...] = PRODUCT) -> list[Path]:
    """Files of the product, without what the build makes."""
    listed = subprocess.run(["git", "ls-files", *under], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if Path(line).suffix in suffixes]


def lines(paths: list[Path]) -> int:
    """Lines of all files together."""
    return sum(path.read_text().count("\n") for path in paths)


def is_generated(path: Path) -> bool:
    """Whether a tool wrote the file: its first lines say so."""
    return "generated" in path.read_text()[:400]


def journeys() -> list[int]:
    """Files of each journey of ARCHITECTURE.md."""
    chapter = DOCUMENT.read_text().partition("## Four journeys")[2].partition("\n## ")[0]
    parts = re.split(r"^### .*$", chapter, flags=re.MULTILINE)[1:]
    return [len(re.findall(r"^\d+\. `", part, re.MULTILINE)) for part in parts]


def retired_words() -> str:
    """Ceilings of all retired words together, in code and in documents."""
    text = (ROOT / "tests" / "retired_words.toml").read_text()
    code, docs = (
        sum(int(n) for n in re.findall(rf"\b{column} = (\d+)", text)) for column in ("code", "docs")
    )
    return f"{code:,}, {docs:,}"


def docstrings_with_who(python: list[Path]) -> int:
    """Docstrings of the product whose first word is *Who*."""
    with_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        (ast.get_docstring(node) or "").startswith("Who ")
        for path in python
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, with_docstring)
    )


def import_paths() -> int:
    """Modules of ours that documents and examples import."""
    documents = [*sources(".md", under=("README.md", "docs")), *sources(".py", under=("examples",))]
    pattern = re.compile(r"^\s*(?:from|import) (pyledger[\w.]*)", re.MULTILINE)
    return len({module for path in documents for module in pattern.findall(path.read_text())})


def measure() -> dict[str, str]:
    """Each figure of today, by its row."""
    python = sources(".py")
    native = sources(".pyx", ".pxd", ".h")
    stub = sources(".pyi")
    folders = Counter(path.parent for path in python + native if path.name != "__init__.py")
    put, send, vote, add = journeys()
    blocking = [p for p in python if "blocking" in p.parts and not is_generated(p)]
    loose = re.compile(r"\*\*\w+: (?:object|Any)\b")
    return {
        "lines of the product without the stub": f"{lines(python) + lines(native):,}",
        "lines of Python, of native code, of the stub": ", ".join(
            f"{lines(paths):,}" for paths in (python, native, stub)
        ),
        "files of the product": f"{len(python) + len(native) + len(stub):,}",
        "lines of tests": f"{lines(sources('.py', under=('tests',))):,}",
        "files in the largest folder": str(max(folders.values())),
        "folders with more than 20 files": str(sum(n > 20 for n in folders.values())),
        "files listed from a put to a row of Spark": str(put),
        "files listed for a SEND_MESSAGE": str(send),
        "files listed for a vote": str(vote),
        "files listed for a ledger add": str(add),
        "import paths in README, docs and examples": str(import_paths()),
        "keyword arguments of type `object` or `Any` in signatures": str(
            sum(len(loose.findall(path.read_text())) for path in python)
        ),
        "lines of the synchronous clients written by hand": f"{lines(blocking):,}",
        "docstrings that begin with *Who*": str(docstrings_with_who(python)),
        "uses of retired words in code, in documents": retired_words(),
    }


def build() -> str:
    """Time and memory of a build of the native module, with the flags of `setup.py`."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--force"]
        subprocess.run([*command, f"--build-lib={folder}", f"--build-temp={folder}"], cwd=ROOT, check=True)
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    return f"build of the native module: {time.monotonic() - start:.0f} s, {peak_mib:,} MiB at most"


def main() -> None:
    """Print the table, and replace the one in the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true", help="also build the native module")
    options = parser.parse_args()
    rows = [f"| {row} | {BEFORE.get(row, '–')} | {figure} |" for row, figure in measure().items()]
    table = "\n".join(["| | before | now |", "|---|---|---|", *rows]) + "\n"
    print(table, end="")
    DOCUMENT.write_text(TABLE.sub(lambda mark: mark[1] + table + mark[2], DOCUMENT.read_text()))
    if options.build:
        print(build())


if __name__ == "__main__":
    main()
