"""The first minute of a new user, in a fresh Debian with a clock.

    python tools/first_minute.py [--wheel dist/pyledger-….whl] [--suite bookworm]

Makes a Debian of the smallest kind with Python and nothing else, and installs the wheel with pip. Then it
writes, prints and verifies a store, and serves, sends and consumes. Prints a table of seconds; exits with 1
if a step takes longer than its limit. The wheel must be for the Python of the suite; its dependencies are
downloaded before the clock starts. Without root or debootstrap it gives that reason and exits with 0.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = "/venv/bin/pyledger"
SERVED = "serve, produce, consume"
LIMITS_S = {"pip install": 10.0, SERVED: 1.0}
SERVE = f"""
import subprocess
free = ["--store", "/broker", "--listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0"]
with subprocess.Popen(["{BIN}", "serve", *free], stdout=subprocess.PIPE, text=True) as server:
    to = ["--namesrv", server.stdout.readline().split()[-1], "--topic", "Orders"]
    subprocess.run(["{BIN}", "produce", *to], input="one pizza", text=True, check=True)
    found = subprocess.run(["{BIN}", "consume", *to, "--exit"], capture_output=True, text=True, check=True)
    server.terminate()
assert "one pizza" in found.stdout, found
"""


def main() -> None:
    """Run the steps; print the table."""
    parser = argparse.ArgumentParser(description="the first minute in a fresh Debian")
    parser.add_argument("--wheel", type=Path, help="the newest of dist/ by default")
    parser.add_argument("--suite", default="bookworm", help="the suite of Debian")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("skipped: a chroot needs root and debootstrap")
        return
    wheels = sorted((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    wheel: Path | None = options.wheel or (wheels[-1] if wheels else None)
    if wheel is None:
        sys.exit("there is no wheel in dist/: run `make package`")
    with tempfile.TemporaryDirectory() as scratch:
        debian = Path(scratch, "debian")
        include = "--include=python3,python3-venv"
        print(f"making a Debian {options.suite}: some minutes")
        make = ["debootstrap", "--variant=minbase", include, options.suite, str(debian)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        (debian / "wheels").mkdir()
        fetch = [
            "download",
            "--quiet",
            "--only-binary",
            ":all:",
            "--dest",
            str(debian / "wheels"),
            str(wheel),
        ]
        subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
        late = walk_through(debian)
    if late:
        sys.exit(f"over the limit: {', '.join(late)}")


def walk_through(debian: Path) -> list[str]:
    """Run the steps in a folder with a Debian; return those that took too long."""
    write = f"""echo '{{"id": "A-1"}}' | {BIN} write /store --topic orders --key id"""
    steps = {
        "python3 -m venv": ["python3", "-m", "venv", "/venv"],
        "pip install": [
            "/venv/bin/pip",
            "install",
            "--quiet",
            "--no-index",
            "--find-links=/wheels",
            "pyledger",
        ],
        "write": ["sh", "-c", write],
        "cat": [BIN, "cat", "/store"],
        "verify": [BIN, "verify", "/store"],
        SERVED: ["python3", "-c", SERVE],
    }
    late = []
    print(f"{'step':24} {'seconds':>8} {'limit':>6}")
    for name, command in steps.items():
        # The mount of /proc is gone when the process ends.
        inside = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"']
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", "HOME": "/root"}
        started_s = time.monotonic()
        done = subprocess.run(
            [*inside, str(debian), *command], env=environment, capture_output=True, text=True, check=False
        )
        took_s = time.monotonic() - started_s
        if done.returncode:
            sys.exit(f"{name}: {done.stdout}{done.stderr}")
        print(f"{name:24} {took_s:8.2f} {LIMITS_S.get(name, ''):>6}")
        if took_s > LIMITS_S.get(name, took_s):
            late.append(name)
    return late


if __name__ == "__main__":
    main()
