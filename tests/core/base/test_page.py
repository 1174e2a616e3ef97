"""Sizes of memory pages that the native module takes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
long sysconf(int name) {
    long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE ? PAGE_BYTES : real(name);
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="puts another sysconf before the C library's")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("page_bytes", "supported"), [(2048, False), (4096, True), (65536, True), (131072, False)]
)
def test_import_tells_which_pages_are_supported(tmp_path: Path, page_bytes: int, supported: bool) -> None:
    source, shim = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-DPAGE_BYTES={page_bytes}", "-o", shim, source, "-ldl"], check=True
    )
    done = subprocess.run(
        [sys.executable, "-c", "import pyledger._core"],
        env=os.environ | {"LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if supported:
        assert done.returncode == 0, done.stderr
    else:
        last = done.stderr.strip().splitlines()[-1]
        assert last == (
            "ImportError: pyledger supports pages of 4 to 64 KiB; "
            f"this system's have {page_bytes // 1024} KiB"
        )
