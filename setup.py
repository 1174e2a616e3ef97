"""Builds the one native module, `pyledger._core`, from `src/_core/_core.pyx`.

All Cython directives stand here: a header comment in a fragment would override them or be ignored.
PYLEDGER_DEBUG=1 builds with every run-time check on, PYLEDGER_ANNOTATE=1 writes Cython's HTML.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import _StaticPth, editable_wheel

DEBUG = os.environ.get("PYLEDGER_DEBUG") == "1"
ANNOTATE = os.environ.get("PYLEDGER_ANNOTATE") == "1"
CORE = Path("src/_core")
SOURCE_ROOTS = ("src", "spark_ext")
# What the caller asks for with CFLAGS stands; else -g0 undoes the -g of many an interpreter: debug
# information would be nine tenths of the file.
OPTIMIZED = any(flag.startswith("-O") for flag in shlex.split(os.environ.get("CFLAGS", "")))


class CheckedBuildExt(build_ext):
    """Says which package to install when the machine cannot compile, instead of a page of compiler output."""

    def build_extensions(self):
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
        missing = []
        if shutil.which(compiler) is None:
            missing.append(f"a C compiler ({compiler}); on Debian or Ubuntu: apt install build-essential")
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            missing.append("Python's C headers (Python.h); on Debian or Ubuntu: apt install python3-dev")
        if missing:
            sys.exit("pyledger: building needs " + ", and ".join(missing))
        super().build_extensions()


class PathEditableWheel(editable_wheel):
    """Editable install by a `.pth` file that names both source roots.

    Spark finds its Python sources with `pkgutil.iter_modules`, which sees folders on `sys.path` but not the
    import hook that setuptools would install for a project with two roots.
    """

    def _select_strategy(self, name, _tag, _build_lib):
        return _StaticPth(self.distribution, name, [Path(root).resolve() for root in SOURCE_ROOTS])


core = Extension(
    "pyledger._core",
    sources=[str(CORE / "_core.pyx")],
    include_dirs=[str(CORE)],
    depends=[str(path) for path in sorted(CORE.rglob("*.[ph]*")) if path.name != "_core.pyx"],
    extra_compile_args=[
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        *([] if OPTIMIZED else ["-O1", "-g"] if DEBUG else ["-O3", "-g0"]),
    ],
    extra_link_args=["-pthread"],
    define_macros=[("PYLEDGER_ASSERT", "1")] if DEBUG else [("NDEBUG", "1")],
)

setup(
    cmdclass={"build_ext": CheckedBuildExt, "editable_wheel": PathEditableWheel},
    ext_modules=cythonize(
        [core],
        include_path=["src"],
        annotate=ANNOTATE,
        force=ANNOTATE,
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        compiler_directives={
            "language_level": "3",
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "binding": True,
            "embedsignature": True,
        },
        emit_linenums=DEBUG,
    ),
)
