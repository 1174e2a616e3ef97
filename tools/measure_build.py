"""Measures a build of the native module from nothing: seconds, memory of the largest process, size.

    python tools/measure_build.py [--cores 0,1]

It builds a copy in a temporary folder with the environment as it is, so CFLAGS="-O3" measures that instead.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


def measure(folder: Path) -> None:
    """Build in a folder with a copy of the sources; print a line for each figure."""
    started_s = time.monotonic()
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(folder / "lib")]
    subprocess.run(command, cwd=folder, check=True)
    took_s = time.monotonic() - started_s
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with next(folder.glob("build/cython*/src/_core/_core.c")).open("rb") as translated:
        lines = sum(1 for _ in translated)
    built = next(folder.glob("lib/pyledger/_core.*.so"))
    print(f"elapsed                  {took_s:8.1f} s on {len(os.sched_getaffinity(0))} cores")
    print(f"processor time           {used.ru_utime + used.ru_stime:8.1f} s")
    print(f"largest process          {used.ru_maxrss / 1024:8.0f} MiB resident")
    print(f"lines of C               {lines:8,}")
    print(f"module                   {built.stat().st_size / 1e6:8.1f} MB")


def main() -> None:
    """Copy the sources and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cores", help="use only these cores: 0,1")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, map(int, arguments.cores.split(",")))
    with tempfile.TemporaryDirectory() as copy:
        for name in NEEDED:
            shutil.copy(ROOT / name, copy)
        shutil.copytree(ROOT / "src", Path(copy, "src"), ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        measure(Path(copy))


if __name__ == "__main__":
    main()
