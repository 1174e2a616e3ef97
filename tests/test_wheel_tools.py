"""The inspection of wheels: each promise in a name that the module inside does not keep is found."""

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

pytest.importorskip("elftools", reason="needs pyelftools")
pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(
        (sys.platform, sys.maxsize > 2**32) != ("linux", True), reason="looks into files of Linux"
    ),
]
MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"
GOOD = f"cp311-cp311-manylinux_2_99_{MACHINE}"


def wheel(folder: Path, tag: str, module: str, *flags: str) -> Path:
    """A wheel of this tag around a module of one function, compiled here."""
    source, built = folder / "core.c", folder / "core.so"
    source.write_text("#include <time.h>\nlong now(void) { return (long)time(0); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source, *flags], check=True)
    path = folder / f"pyledger-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(built, f"pyledger/{module}")
    return path


@pytest.mark.parametrize(
    ("tag", "module", "flags", "problem"),
    [
        (GOOD, f"_core.cpython-311-{MACHINE}-linux-gnu.so", [], ""),
        (GOOD, f"_core.cpython-312-{MACHINE}-linux-gnu.so", [], "does not end with .cpython-311-"),
        (f"cp311-cp311-manylinux_2_99_{OTHER}", f"_core.cpython-311-{OTHER}-linux-gnu.so", [], "is for EM_"),
        (f"cp311-cp311-manylinux_2_0_{MACHINE}", f"_core.cpython-311-{MACHINE}-linux-gnu.so", [],
         "the wheel promises 2.0"),
        (f"cp311-cp311-musllinux_1_2_{MACHINE}", f"_core.cpython-311-{MACHINE}-linux-musl.so", [],
         "needs libc.so.6"),
        (GOOD, f"_core.cpython-311-{MACHINE}-linux-gnu.so", ["-Wl,-rpath,/opt/lib"],
         "looks for libraries in /opt/lib"),
        (GOOD, f"_core.cpython-311-{MACHINE}-linux-gnu.so", ["-Wl,--no-as-needed", "-lz"], "needs libz.so.1"),
        (GOOD, f"other.cpython-311-{MACHINE}-linux-gnu.so", [], "must have one extension module, _core"),
    ],
    ids=["good", "suffix", "machine", "glibc", "musl", "rpath", "library", "module"],
)  # fmt: skip
def test_inspection_finds_the_broken_promise(
    tmp_path: Path, tag: str, module: str, flags: list[str], problem: str
) -> None:
    if (
        "-lz" in flags
        and subprocess.run(
            ["cc", "-print-file-name=libz.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "libz.so"
    ):
        pytest.skip("needs zlib to link with")
    path = wheel(tmp_path, tag, module, *flags)
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "inspect_wheel.py", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == bool(problem), done.stdout + done.stderr
    assert problem in done.stdout
    if not problem:
        assert "libc.so.6" in done.stdout
