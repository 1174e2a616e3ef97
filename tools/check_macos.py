"""Compiles the native module for macOS, links it, and checks that the system has every function it calls.

Nothing here runs what it builds: that needs a Mac. The compiler is ziglang's, with the headers of macOS and
the names that its libSystem exports; the C file is what `make build` leaves.

    python tools/check_macos.py [arm64] [x86_64]
"""

import importlib.util
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
C_FILE = ROOT / "build/cython/src/_core/_core.c"
# The first version with pwritev.
VERSION = "11.0"
TARGETS = {"arm64": f"aarch64-macos.{VERSION}", "x86_64": f"x86_64-macos.{VERSION}"}
# CPython's headers are the same for all systems but for this one, which its configure writes. These are the
# macros that the others and Cython's C files read and that are set on macOS. With the whole file of a CPython
# for macOS the compiler makes the same object file.
PYCONFIG = """
#define HAVE_BUILTIN_ATOMIC 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_DLOPEN 1
#define HAVE_FORK 1
#define HAVE_LANGINFO_H 1
#define HAVE_PTHREAD_H 1
#define HAVE_READLINK 1
#define HAVE_REALPATH 1
#define HAVE_SIGACTION 1
#define HAVE_SIGALTSTACK 1
#define HAVE_SSIZE_T 1
#define HAVE_STD_ATOMIC 1
#define HAVE_SYS_SELECT_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_UNISTD_H 1
#define HAVE_WCHAR_H 1
#define PY_FORMAT_SIZE_T "z"
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_LONG_LONG 8
#define SIZEOF_PID_T 4
#define SIZEOF_PTHREAD_T 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_UINTPTR_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 4
#define SIZEOF__BOOL 1
#ifdef __aarch64__
#define ALIGNOF_MAX_ALIGN_T 8
#define SIZEOF_LONG_DOUBLE 8
#else
#define ALIGNOF_MAX_ALIGN_T 16
#define SIZEOF_LONG_DOUBLE 16
#endif
#define THREAD_STACK_SIZE 0x1000000
#define WITH_DOC_STRINGS 1
#define WITH_FREELISTS 1
#define WITH_MIMALLOC 1
#define WITH_PYMALLOC 1
"""
OPTIONS = ("-O1", "-g0", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-DNDEBUG",
           # Cython's own code, and its habits.
           "-Wno-unused-parameter", "-Wno-unused-function", "-Wno-sign-compare", "-Wno-parentheses-equality",
           "-Wno-missing-field-initializers", "-Wno-unreachable-code")  # fmt: skip
OBJECT_MAGIC, SYMBOL_TABLE = 0xFEEDFACF, 2
DEBUG_MASK, KIND_MASK, EXTERNAL = 0xE0, 0x0E, 0x01
# dyld has it, which is not listed with the libraries.
OF_THE_LINKER = {"dyld_stub_binder"}


def python_headers(into: Path) -> Path:
    """Copy this interpreter's headers with the configuration of macOS."""
    shutil.copytree(sysconfig.get_path("include"), into, dirs_exist_ok=True)
    lines = PYCONFIG
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        lines += "#define Py_GIL_DISABLED 1\n"
    (into / "pyconfig.h").write_text(lines)
    return into


def build(machine: str, headers: Path, into: Path) -> Path:
    """Compile and link the module for a machine."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[machine]]
    made, module = into / f"{machine}.o", into / f"_core.{machine}.so"
    paths = [f"-I{headers}", f"-I{ROOT / 'src/_core'}"]
    subprocess.run([*zig, *OPTIONS, *paths, "-c", str(C_FILE), "-o", str(made)], check=True)
    # A Python that loads the module has the symbols of its own interface.
    link = ["-shared", "-Wl,-undefined,dynamic_lookup", str(made), "-o", str(module)]
    subprocess.run([*zig, *link], check=True)
    return module


def undefined_symbols(path: Path) -> Iterator[str]:
    """Yield the symbols that a Mach-O file expects of others, each without the underscore of C."""
    data = path.read_bytes()
    magic, *_, commands, _, _, _ = struct.unpack_from("<8I", data)
    if magic != OBJECT_MAGIC:
        raise ValueError(f"{path}: not a 64-bit Mach-O file")
    at = 32
    for _ in range(commands):
        command, size_bytes = struct.unpack_from("<2I", data, at)
        if command == SYMBOL_TABLE:
            table, count, names, _ = struct.unpack_from("<4I", data, at + 8)
            for which in range(count):
                name, kind, _, _, value = struct.unpack_from("<IBBHQ", data, table + 16 * which)
                if kind & EXTERNAL and not kind & (DEBUG_MASK | KIND_MASK) and value == 0:
                    begin = names + name
                    yield data[begin : data.index(b"\0", begin)].decode().removeprefix("_")
        at += size_bytes


def foreign_symbols(symbols: set[str], headers: Path) -> list[str]:
    """Return the symbols that neither Python nor macOS has."""
    found = importlib.util.find_spec("ziglang")
    assert found is not None, "it has compiled"
    assert found.origin is not None
    system = (Path(found.origin).parent / "lib/libc/darwin/libSystem.tbd").read_text()
    python = "".join(path.read_text() for path in headers.rglob("*.h"))
    known = {name.removeprefix("_") for name in re.findall(r"[\w$]+", system)} | OF_THE_LINKER
    declared = {name for name in re.findall(r"\w+", python) if name.startswith(("Py", "_Py"))}
    return sorted(symbols - known - declared)


def main() -> None:
    """Check the machines that are named, or both."""
    machines = sys.argv[1:] or list(TARGETS)
    if unknown := set(machines) - set(TARGETS):
        sys.exit(f"{', '.join(unknown)}: the machines are {' and '.join(TARGETS)}")
    if not C_FILE.exists():
        sys.exit(f"{C_FILE} is missing; run `make build`")
    if importlib.util.find_spec("ziglang") is None:
        sys.exit("the compiler is missing; run `pip install ziglang`")
    with TemporaryDirectory() as folder:
        headers = python_headers(Path(folder, "include"))
        for machine in machines:
            module = build(machine, headers, Path(folder))
            symbols = set(undefined_symbols(module))
            if foreign := foreign_symbols(symbols, headers):
                sys.exit(f"macOS has no {', '.join(foreign)}")
            of_python = sum(name.startswith(("Py", "_Py")) for name in symbols)
            print(
                f"macOS {machine}: compiled and linked, never run; {module.stat().st_size} bytes, calls"
                f" {of_python} symbols of Python and {len(symbols) - of_python} of the system"
            )


if __name__ == "__main__":
    main()
