"""The ways to install: from a checkout, editable, and from a wheel that was built from an sdist."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, tracked

# In one process: they share the checkout, where Cython translates once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("packaging")]

# Without `-P` the folder that a test runs in would be on sys.path and could hide a broken install.
SEEN = """
import json, pkgutil
import pyledger._core
found = [module.name for module in pkgutil.iter_modules() if "pyledger" in module.name]
print(json.dumps({"modules": sorted(found), "core": pyledger._core.__file__}))
"""


@pytest.fixture(autouse=True)
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds without optimization: where things are put is what counts here."""
    compiler = tmp_path / "quick-cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0 -fno-lto\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project as a clone would have it: nothing that is built or ignored."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in tracked():
        if not path.is_relative_to(ROOT / "tests" / "golden"):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return folder


def environment(**extra: str) -> dict[str, str]:
    """The environment without what would lead to this checkout."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYLEDGER", "COV"))
    }
    return kept | extra


def run(*command: str | Path, cwd: Path, **extra: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(folder: Path, *arguments: str | Path) -> Path:
    """A fresh environment with only PyLedger in it; building takes Cython and setuptools from this one."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    target = next(folder.glob("lib/python*/site-packages"))
    flags = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        *flags,
        *arguments,
        cwd=folder,
        PYTHONPATH=site_packages(),
    )
    assert any(target.glob("pyledger-*.dist-info"))
    return python


def site_packages() -> str:
    """Where Cython and setuptools are, for builds in an environment that has neither."""
    import setuptools

    return str(Path(setuptools.__file__).parent.parent)


def seen_by(python: Path, cwd: Path) -> dict[str, object]:
    seen: dict[str, object] = json.loads(run(python, "-P", "-c", SEEN, cwd=cwd))
    return seen


def test_editable_install_shows_both_packages_to_spark(checkout: Path, tmp_path: Path) -> None:
    seen = seen_by(install(tmp_path / "env", "--editable", checkout), tmp_path)
    assert seen["modules"] == ["pyledger", "pyspark_pyledger"]
    assert str(seen["core"]).startswith(str(checkout / "src" / "pyledger"))


def test_plain_install_shows_both_packages_to_spark(checkout: Path, tmp_path: Path) -> None:
    seen = seen_by(install(tmp_path / "env", checkout), tmp_path)
    assert seen["modules"] == ["pyledger", "pyspark_pyledger"]
    assert str(seen["core"]).startswith(str(tmp_path / "env"))


def test_wheel_from_sdist_has_everything(checkout: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, checkout, cwd=tmp_path)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
    assert {
        "src/_core/_core.pyx",
        "src/_core/layout.pxd",
        "src/_core/__init__.pxd",
        "Makefile",
        "LICENSE",
    } <= sources
    assert not [name for name in sources if name.endswith((".so", "_core.c", ".pyc"))]

    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"pyledger/py.typed", "pyledger/_core.pyi", "pyspark_pyledger/__init__.py"} <= names
    assert {
        "pyledger/errors/store.py",
        "pyledger/store/files/meta_file.py",
        "pyspark_pyledger/py.typed",
    } <= names
    assert any(name.endswith(".dist-info/sboms/pyledger.cdx.json") for name in names)
    assert len([name for name in names if name.startswith("pyledger/_core.") and name.endswith(".so")]) == 1
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"pyledger", "pyspark_pyledger"}
    modules = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "pyledger").rglob("*.py")}
    assert modules <= names

    seen = seen_by(install(tmp_path / "env", wheel), tmp_path)
    assert seen["modules"] == ["pyledger", "pyspark_pyledger"]


def test_missing_compiler_is_one_clear_message(checkout: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", tmp_path / "lib"],
        cwd=checkout,
        env=environment(CC="no-such-compiler", PYTHONPATH=site_packages()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "a C compiler (no-such-compiler); on Debian or Ubuntu: apt install build-essential" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unsupported_processor_is_named_at_import() -> None:
    command = [sys.executable, "-c", "import sys; sys.byteorder = 'big'; import pyledger"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: pyledger supports Linux and macOS on 64-bit little-endian processors"
    )
