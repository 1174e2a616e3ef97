"""Builds the native module with AddressSanitizer, UBSan and assertions, and runs tests on it.

It lies in build/sanitized, beside links to the Python sources; what `make build` has made stays.

    python tools/sanitize.py [--seconds 300] [tests ...]
    UBSAN_OPTIONS=halt_on_error=0 python tools/sanitize.py -- --maxfail=0 tests   # all that UBSan finds
"""

import argparse
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "sanitized"
STAMP = BUILT / "stamp"
PACKAGE = BUILT / "lib" / "pyledger"
SANITIZERS = "-fsanitize=address,undefined"
FLAGS = f"-O1 -g1 -fno-omit-frame-pointer {SANITIZERS}"
# Native code alone, the folders and recordings of real peers, and the fuzz tests, whose seeds are fixed.
TESTS = ["tests/core", "tests/golden", "tests/wire/remoting/test_native_codec.py",
         "tests/wire/remoting/test_native_sends.py", "tests/wire/remoting/test_native_pulls.py",
         "tests/wire/bookkeeper/test_plain_reads.py", "tests/wire/bookkeeper/test_many_entries.py",
         "tests/net/test_golden_streams.py", "tests/store/reading/test_damaged_mappings.py",
         "tests/store/test_mutated_folders.py", "tests/store/queues/test_hostile_queues.py",
         "tests/store/messages/test_threads.py", "tests/store/test_fuzz.py"]  # fmt: skip
STOPPING_S = 20


def compiler() -> str:
    """The program that compiles."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]


def runtime_library() -> str | None:
    """Path of the compiler's libasan; None where it has none."""
    if shutil.which(compiler()) is None:
        return None
    command = [compiler(), "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) and os.path.exists(found) else None


def build() -> None:
    """Compile, unless the same sources were compiled with the same flags; link the Python sources."""
    # The caller's flags stand behind ours, so they win.
    environment = dict(
        os.environ,
        PYLEDGER_DEBUG="1",
        CFLAGS=f"{FLAGS} {os.environ.get('CFLAGS', '')}",
        LDFLAGS=f"{SANITIZERS} {os.environ.get('LDFLAGS', '')}",
    )
    digest = hashlib.sha256(f"{sys.version} {compiler()} {environment['CFLAGS']}".encode())
    for path in (ROOT / "setup.py", *sorted((ROOT / "src" / "_core").rglob("*.[ph]*"))):
        digest.update(path.read_bytes())
    if not STAMP.exists() or STAMP.read_text() != digest.hexdigest():
        print("compiling the native module with sanitizers: one to three minutes", flush=True)
        STAMP.unlink(missing_ok=True)
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--force",
                   "--build-lib", str(BUILT / "lib"), "--build-temp", str(BUILT / "temp")]  # fmt: skip
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        STAMP.write_text(digest.hexdigest())
    for path in PACKAGE.iterdir():
        if path.is_symlink():
            path.unlink()
    for path in (ROOT / "src" / "pyledger").iterdir():
        if path.suffix != ".so" and path.name != "__pycache__":
            (PACKAGE / path.name).symlink_to(path)


def run_tests(library: str, arguments: list[str], seconds: float) -> int:
    """Run tests in two processes, for so long at most; pytest's exit code, 0 when the time is over."""
    sources = [str(PACKAGE.parent), str(ROOT / "spark_ext"), str(ROOT)]
    environment = dict(
        os.environ,
        LD_PRELOAD=library,
        PYTHONPATH=os.pathsep.join(sources),
        # Each object of Python in memory of its own: what reads beyond it is seen.
        PYTHONMALLOC="malloc",
        # Python keeps what it allocated to its end; a fault of a mapping is handled by the module itself.
        ASAN_OPTIONS="detect_leaks=0:allow_user_segv_handler=1:handle_sigbus=0",
        UBSAN_OPTIONS="print_stacktrace=1:" + os.environ.get("UBSAN_OPTIONS", "halt_on_error=1"),
    )
    command = [sys.executable, "-c", "import pyledger._core as core; print(core.__file__, core.build_kind())"]
    module = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    if not (module.startswith(str(PACKAGE)) and module.endswith("debug\n")):
        raise SystemExit(f"sanitize: the tests would import {module.strip()}")
    # What native code writes at its end is not captured, so it is seen. The first finding ends the tests, so
    # there was none before the time is over.
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist=loadfile", "--maxfail=1",
               "--capture=sys", "-p", "no:benchmark", "-m", "not java and not spark",
               "-o", f"pythonpath={' '.join(sources)}"]  # fmt: skip
    tests = subprocess.Popen(
        [*command, *(arguments or TESTS)], cwd=ROOT, env=environment, start_new_session=True
    )
    try:
        return tests.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"sanitize: the time is over after {seconds:.0f} s of tests; those that are left did not run")
        os.killpg(tests.pid, signal.SIGINT)
        try:
            tests.wait(timeout=STOPPING_S)
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGKILL)
        return 0


def main() -> int:
    """Build, then run the tests; pytest's exit code."""
    parser = argparse.ArgumentParser(description="The native tests with sanitizers.")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after so long, building included")
    parser.add_argument("tests", nargs="*", help="arguments of pytest; without any, the native tests")
    options = parser.parse_args()
    library = runtime_library()
    if library is None:
        print("sanitize: skipped, as the compiler has no libasan (on Debian or Ubuntu: apt install libasan8)")
        return 0
    begin = time.monotonic()
    build()
    return run_tests(library, options.tests, max(1.0, options.seconds - (time.monotonic() - begin)))


if __name__ == "__main__":
    raise SystemExit(main())
