"""Builds the one native module, `pyledger._core`, from `src/_core/_core.pyx`.

All Cython directives stand here: a header comment in a fragment would override them or be ignored.
PYLEDGER_DEBUG=1 builds with every run-time check on.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("PYLEDGER_DEBUG") == "1"
CORE = Path("src/_core")

core = Extension(
    "pyledger._core",
    sources=[str(CORE / "_core.pyx")],
    include_dirs=[str(CORE)],
    depends=[str(p) for p in sorted(CORE.iterdir()) if p.suffix in {".pyx", ".pxd", ".h"} and p.stem != "_core"],
    extra_compile_args=["-Wall", "-Wextra", "-Wno-unused-parameter", *(["-O1", "-g"] if DEBUG else ["-O3"])],
    extra_link_args=["-pthread"],
    define_macros=[("PYLEDGER_ASSERT", "1")] if DEBUG else [("NDEBUG", "1")],
)

setup(
    ext_modules=cythonize(
        [core],
        include_path=["src"],
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
