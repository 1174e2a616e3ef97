"""Builds sdist and wheel twice, in two folders; checks bytes, size, metadata and bill of materials.

    python tools/check_package.py [--keep FOLDER]

Prints a line for each check, with sizes. CC and CFLAGS apply; the build tools are those of this environment.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SDIST_BYTES_MAX = 3 << 20
WHEEL_BYTES_MAX = 4 << 20


def output_of(*command: str) -> str:
    """Run a command in the checkout; return what it prints, without its last line end."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def copy_checkout(folder: Path) -> None:
    """Copy what git tracks, as it is on disk."""
    for name in output_of("git", "ls-files", "-z").split("\0"):
        source, target = ROOT / name, folder / name
        if name and source.is_file() and not name.startswith("tests/golden/"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def build(folder: Path, environment: dict[str, str]) -> list[Path]:
    """Build from a fresh copy in a folder; return sdist and wheel."""
    copy_checkout(folder / "checkout")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), "."]
    done = subprocess.run(
        command, cwd=folder / "checkout", env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return [next((folder / "dist").glob(pattern)) for pattern in ("*.tar.gz", "*.whl")]


def check_bill(wheel: Path) -> None:
    """Raise unless the wheel has a CycloneDX file that names this version of PyLedger."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if ".dist-info/sboms/" in name]
        bill = json.loads(packed.read(name))
    component = bill["metadata"]["component"]
    if (bill["bomFormat"], component["version"]) != ("CycloneDX", wheel.name.split("-")[1]):
        sys.exit(f"{name} is not the bill of {wheel.name}: {component}")
    print(f"bill of materials: {name}, {len(bill['components'])} components")


def main() -> None:
    """Check, print, and exit with 1 at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description="build sdist and wheel twice, and check them")
    parser.add_argument("--keep", type=Path, help="folder for sdist and wheel")
    keep = parser.parse_args().keep
    environment = os.environ | {
        "SOURCE_DATE_EPOCH": output_of("git", "log", "-1", "--format=%ct"),
        "SETUPTOOLS_SCM_PRETEND_VERSION": output_of(sys.executable, "-m", "setuptools_scm"),
    }
    with tempfile.TemporaryDirectory() as scratch:
        first = build(Path(scratch, "one"), environment)
        second = build(Path(scratch, "a folder with a longer name"), environment)
        for one, other, limit in zip(first, second, (SDIST_BYTES_MAX, WHEEL_BYTES_MAX), strict=True):
            size, digest = one.stat().st_size, hashlib.sha256(one.read_bytes()).hexdigest()
            if one.read_bytes() != other.read_bytes():
                sys.exit(f"{one.name}: two builds have different bytes")
            if size > limit:
                sys.exit(f"{one.name} has {size:,} bytes, at most {limit:,} are wanted")
            print(f"{one.name}: {size:,} bytes, twice the same, sha256 {digest}")
        check_bill(first[1])
        subprocess.run(
            [sys.executable, "-m", "twine", "check", "--strict", *map(str, first)], cwd=ROOT, check=True
        )
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            for path in first:
                shutil.copy(path, keep)


if __name__ == "__main__":
    main()
