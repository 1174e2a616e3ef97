"""Tests wheels of tools/build_wheels.py, and writes to docs/reference/compatibility.md what ran where.

    python tools/try_wheels.py [--only aarch64 ...] [--tests tests/core ...] [--table]

Wheels for glibc on x86-64 run as they are. The one of Python 3.11 for glibc on 64-bit Arm runs in QEMU with
Debian's Python, with pages of 4 and of 64 KiB. The others are compiled and inspected only.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from build_wheels import BUILT, PYTHONS, ROOT, Target, fetch_python, targets

DOCUMENT = ROOT / "docs" / "reference" / "compatibility.md"
TABLE = re.compile(r"(<!-- measured: tools/try_wheels.py -->\n).*?(<!-- end -->)", re.DOTALL)
RESULTS = BUILT / "results.json"
EMULATED_ROOT = BUILT / "debian-arm64"
EMULATED = Target("3.11", "manylinux_2_17", "aarch64")
PAGE_BYTES = (4096, 65536)
PLATFORMS = {
    ("manylinux_2_17", "x86_64"): "Linux, glibc 2.17 or newer, x86-64",
    ("manylinux_2_17", "aarch64"): "Linux, glibc 2.17 or newer, 64-bit Arm",
    ("musllinux_1_2", "x86_64"): "Linux, musl 1.2 or newer, x86-64",
    ("musllinux_1_2", "aarch64"): "Linux, musl 1.2 or newer, 64-bit Arm",
}
PACKAGES = ["cffi", "click", "hypothesis", "kazoo", "lz4", "numpy", "protobuf", "pyarrow", "pytest<9.2",
            "pytest-benchmark", "pytest-timeout", "rich", "zstandard"]  # fmt: skip
"""What the tests import."""
TESTS = ["tests/core", "tests/golden", "tests/wire/record", "tests/wire/remoting/test_native_sends.py",
         "tests/wire/remoting/test_native_pulls.py", "tests/store/files", "tests/store/reading",
         "tests/store/messages/test_threads.py"]  # fmt: skip
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=.", "-o", "timeout=1800",
          "-m", "not java and not spark and not slow"]  # fmt: skip

NOT_EMULATED = [
    # They read the memory of this process from /proc, which is QEMU's.
    "--deselect=tests/core/cold/test_cold_pages.py::test_pages_made_ahead_of_a_walk_are_given_back",
    "--deselect=tests/core/ha/test_replica_log.py::test_nothing_is_read_ahead_of_what_is_written",
]

# They load libz by ctypes, which needs a libffi that not each of these packages of Python has.
NOT_NATIVE = ["-k", "not libz"]


def install(target: Target, folder: Path) -> None:
    """Unpack the wheel into a folder, and beside it, once, the packages that tests import."""
    wheel = target.wheel()
    if wheel is None:
        raise SystemExit(
            f"wheels: {target.tag} is not built: python tools/build_wheels.py --only {target.tag}"
        )
    packages = folder / "packages"
    if not packages.exists():
        print(f"installing test packages for {target.tag}", flush=True)
        platforms = [f"--platform={name}_{target.machine}" for name in ("manylinux2014", "manylinux_2_28")]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--only-binary=:all:", f"--python-version={target.python}", *platforms,
             f"--target={packages}", *PACKAGES],
            check=True,
        )  # fmt: skip
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "wheel")


def run_tests(command: list[str], environment: dict[str, str]) -> str:
    """Run pytest; what its last line counts, such as `2 failed, 120 passed`."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = "no output"
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    process.wait()
    return last.strip("= ").partition(" in ")[0]


def native(target: Target, tests: list[str]) -> str:
    """Test a wheel with its version of Python on this machine."""
    folder = target.folder / "native"
    install(target, folder)
    paths = os.pathsep.join(str(folder / name) for name in ("wheel", "packages"))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    python = fetch_python(target.python) / "bin" / f"python{target.python}"
    return run_tests([str(python), *PYTEST, *NOT_NATIVE, *tests], environment)


def make_emulated_root() -> None:
    """Unpack Debian's packages for 64-bit Arm; nothing of them is configured, Python runs without."""
    if (EMULATED_ROOT / "repository").exists():
        return
    print("unpacking Debian's Python for 64-bit Arm: 100 MB", flush=True)
    shutil.rmtree(EMULATED_ROOT, ignore_errors=True)
    subprocess.run(
        ["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase", "--include=python3.11",
         "bookworm", str(EMULATED_ROOT)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    for package in sorted((EMULATED_ROOT / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(EMULATED_ROOT)], check=True)
    (EMULATED_ROOT / "repository").mkdir()


def missing_for_emulation() -> str:
    """Why the wheel for 64-bit Arm cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "debootstrap and chroot need root"
    packages = {
        "qemu-aarch64-static": "qemu-user-static",
        "debootstrap": "debootstrap",
        "unshare": "util-linux",
    }
    absent = [package for program, package in packages.items() if shutil.which(program) is None]
    return f"on Debian or Ubuntu: apt install {' '.join(absent)}" if absent else ""


def emulated(page_bytes: int, tests: list[str]) -> str:
    """Test the wheel for 64-bit Arm in QEMU."""
    make_emulated_root()
    install(EMULATED, EMULATED_ROOT / "opt")
    qemu = shutil.which("qemu-aarch64-static")
    assert qemu is not None
    inside = ["env", "-i", f"QEMU_PAGESIZE={page_bytes}", "PATH=/usr/bin:/bin", "HOME=/root", "LANG=C.UTF-8",
              "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=/opt/wheel:/opt/packages",
              "sh", "-c", 'cd /repository && exec "$@"', "sh", "python3.11", *PYTEST, *NOT_EMULATED,
              *tests]  # fmt: skip
    return run_tests(
        ["unshare", "--user", "--map-root-user", "--mount", str(ROOT / "tools" / "emulated_root.sh"),
         str(EMULATED_ROOT), qemu, str(ROOT), *inside],
        dict(os.environ),
    )  # fmt: skip


def known_results() -> dict[str, dict[str, str]]:
    """What runs gave so far: by tag and way of running, the last line of pytest."""
    results: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return results


def cell(target: Target, results: dict[str, dict[str, str]]) -> str:
    """What happened with one target."""
    runs = results.get(target.tag, {})
    if runs:
        return "; ".join(f"{how}: {result}" for how, result in sorted(runs.items()))
    return "compiled" if target.wheel() is not None else "–"


def table(results: dict[str, dict[str, str]]) -> str:
    """Rows of platforms, columns of versions of Python."""
    head = ["| platform | " + " | ".join(PYTHONS) + " |", "|---" * (len(PYTHONS) + 1) + "|"]
    rows = [
        " | ".join([f"| {name}", *(cell(Target(python, *platform), results) for python in PYTHONS)]) + " |"
        for platform, name in PLATFORMS.items()
    ]
    return "\n".join([*head, *rows]) + "\n"


def main() -> int:
    """Run what can run here, and rewrite the table; 1 if a test failed."""
    parser = argparse.ArgumentParser(description="Tests of the wheels, and the table of platforms.")
    parser.add_argument("--only", nargs="*", default=[], help="parts of a tag: cp312 aarch64")
    parser.add_argument("--pages", nargs="*", type=int, default=PAGE_BYTES, help="bytes of a page in QEMU")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="arguments of pytest")
    parser.add_argument("--table", action="store_true", help="write the table, run nothing")
    options = parser.parse_args()
    failed = False
    for target in [] if options.table else targets(options.only):
        runs = {}
        if target == EMULATED and (reason := missing_for_emulation()):
            print(f"{target.tag}: skipped; {reason}")
        elif target == EMULATED:
            for page_bytes in options.pages:
                print(f"{target.tag}, pages of {page_bytes // 1024} KiB", flush=True)
                runs[f"emulated, pages of {page_bytes // 1024} KiB"] = emulated(page_bytes, options.tests)
        elif target.wheel() is not None and (target.system, target.machine) == (
            "manylinux_2_17",
            os.uname().machine,
        ):
            if target.python.endswith("t"):
                print(f"{target.tag}: skipped; no package has its interpreter")
            else:
                print(target.tag, flush=True)
                runs["native"] = native(target, options.tests)
        if runs:
            results = known_results()
            results[target.tag] = results.get(target.tag, {}) | runs
            RESULTS.write_text(json.dumps(results, indent=1))
        failed |= any("passed" not in result or "failed" in result for result in runs.values())
    rows = table(known_results())
    print(rows, end="")
    DOCUMENT.write_text(TABLE.sub(lambda mark: mark[1] + rows + mark[2], DOCUMENT.read_text()))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
