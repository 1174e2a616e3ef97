"""Builds the one native module, `pyledger._core`, from `src/_core/_core.pyx`.

All Cython directives stand here: a header comment in a fragment would override them or be ignored.
PYLEDGER_DEBUG=1 builds with every run-time check on, PYLEDGER_ANNOTATE=1 writes Cython's HTML.
With SOURCE_DATE_EPOCH the same sources give the same bytes: wheel and sdist have that time on all files.
PYLEDGER_HEADERS and PYLEDGER_WHEEL_TAG are for another platform or version of Python: the folder of its C
headers, and the tag of its wheel. CC, CFLAGS, LDSHARED and SETUPTOOLS_EXT_SUFFIX are as anywhere.
"""

import gc
import gzip
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import _StaticPth, editable_wheel
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError, LinkError

if sys.platform not in {"linux", "darwin"} or sys.byteorder != "little" or sys.maxsize < 2**32:
    machine = sysconfig.get_platform()
    sys.exit(f"pyledger supports Linux and macOS on 64-bit little-endian processors, not {machine}")

DEBUG = os.environ.get("PYLEDGER_DEBUG") == "1"
ANNOTATE = os.environ.get("PYLEDGER_ANNOTATE") == "1"
HEADERS = os.environ.get("PYLEDGER_HEADERS")
WHEEL_TAG = os.environ.get("PYLEDGER_WHEEL_TAG")
CORE = Path("src/_core")
SOURCE_ROOTS = ("src", "spark_ext")
# CFLAGS of the caller that name a level win. Otherwise -g0 undoes the -g of many an interpreter: debug
# information would be nine tenths of the file. The parameters are those of -O3 for inlining; its other
# passes add half to the time to compile and gain nothing where time is spent.
CALLER_OPTIMIZES = any(flag.startswith("-O") for flag in shlex.split(os.environ.get("CFLAGS", "")))
INLINING = ("max-inline-insns-single=200", "early-inlining-insns=14", "inline-heuristics-hint-percent=600")
OPTIMIZE = ["-O2", "-g0", *(f"--param={parameter}" for parameter in INLINING)]
# The optimizer runs in one process per core when it runs at link time, each on a part of the module. The
# parameters make the process before it collect its garbage early: they bound its memory.
OPTIMIZE_IN_PARALLEL = ["-flto=auto", "--param=ggc-min-expand=10", "--param=ggc-min-heapsize=131072"]


class CheckedBuildExt(build_ext):
    """Says which package to install when the machine cannot compile, instead of a page of compiler output."""

    def build_extensions(self):
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
        missing = []
        if shutil.which(compiler) is None:
            missing.append(f"a C compiler ({compiler}); on Debian or Ubuntu: apt install build-essential")
        if not Path(HEADERS or sysconfig.get_path("include"), "Python.h").exists():
            missing.append("Python's C headers (Python.h); on Debian or Ubuntu: apt install python3-dev")
        if missing:
            sys.exit("pyledger: building needs " + ", and ".join(missing))
        if HEADERS:  # instead of those of the Python that runs this
            self.compiler.set_include_dirs([HEADERS])
        if not (CALLER_OPTIMIZES or DEBUG) and self._compiles_with([*OPTIMIZE, *OPTIMIZE_IN_PARALLEL]):
            for extension in self.extensions:
                extension.extra_compile_args += OPTIMIZE_IN_PARALLEL
                extension.extra_link_args += [*OPTIMIZE, *OPTIMIZE_IN_PARALLEL]
        super().build_extensions()

    def _compiles_with(self, flags):
        """Return whether compiler and linker take these flags: not every linker has the compiler's plugin."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("int probe(void) { return 0; }\n")
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=flags)
                self.compiler.link_shared_object(
                    objects, str(source.with_suffix(".so")), extra_postargs=flags
                )
            except (CompileError, LinkError):
                return False
        return True


class PathEditableWheel(editable_wheel):
    """Editable install by a `.pth` file that names both source roots.

    Spark finds its Python sources with `pkgutil.iter_modules`, which sees folders on `sys.path` but not the
    import hook that setuptools would install for a project with two roots.
    """

    def _select_strategy(self, name, _tag, _build_lib):
        return _StaticPth(self.distribution, name, [Path(root).resolve() for root in SOURCE_ROOTS])


class WheelWithSbom(bdist_wheel):
    """Wheel with a bill of materials, where PEP 770 puts it, and with the tag in PYLEDGER_WHEEL_TAG."""

    def get_tag(self):
        return tuple(WHEEL_TAG.split("-")) if WHEEL_TAG else super().get_tag()

    def egg2dist(self, egginfo_path, distinfo_path):
        super().egg2dist(egginfo_path, distinfo_path)
        folder = Path(distinfo_path, "sboms")
        folder.mkdir()
        Path(folder, "pyledger.cdx.json").write_text(json.dumps(self._bill(), indent=2) + "\n")

    def _bill(self):
        """CycloneDX. Compiled in is only code that Cython generates; the other components are build tools."""
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        answer = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
        about = self.distribution.metadata
        name, number = about.get_name(), about.get_version()
        tools = [self._package("cython", "required"), self._package("setuptools", "excluded")]
        build = {"scope": "excluded"}
        tools += [
            build | {"type": "application", "name": "compiler", "version": answer.splitlines()[0]},
            build | {"type": "platform", "name": "CPython", "version": platform.python_version()},
        ]
        itself = {"type": "library", "bom-ref": "self", "name": name, "version": number}
        itself |= {"purl": f"pkg:pypi/{name}@{number}", "licenses": [{"expression": "Apache-2.0"}]}
        return {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": itself},
            "components": tools,
            "dependencies": [{"ref": "self", "dependsOn": [tools[0]["bom-ref"]]}],
        }

    @staticmethod
    def _package(name, scope):
        purl = f"pkg:pypi/{name}@{version(name)}"
        about = {"type": "library", "bom-ref": purl, "name": name, "version": version(name)}
        return about | {"scope": scope, "purl": purl}


class ReproducibleSdist(sdist):
    """Source distribution whose bytes do not depend on the clock, the folder or the user."""

    def make_archive(self, base_name, _format, *, base_dir, **_):
        time_s = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980, as zip files begin there

        def plain(entry):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = time_s, 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=time_s) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for entry in sorted(Path(base_dir).rglob("*")):
                archive.add(entry, recursive=False, filter=plain)
        return path


core = Extension(
    "pyledger._core",
    sources=[str(CORE / "_core.pyx")],
    include_dirs=[str(CORE)],
    depends=[str(path) for path in sorted(CORE.rglob("*.[ph]*")) if path.name != "_core.pyx"],
    extra_compile_args=[
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        # It reads the source again from its start for each `if`: ten seconds on a file of this size.
        "-Wno-misleading-indentation",
        *([] if CALLER_OPTIMIZES else ["-O1", "-g"] if DEBUG else OPTIMIZE),
    ],
    extra_link_args=["-pthread"],
    define_macros=[("PYLEDGER_ASSERT", "1")] if DEBUG else [("NDEBUG", "1")],
)

# Cython's trees live until the process ends: looking through them for garbage took half of its time.
gc.disable()

setup(
    cmdclass={
        "bdist_wheel": WheelWithSbom,
        "build_ext": CheckedBuildExt,
        "editable_wheel": PathEditableWheel,
        "sdist": ReproducibleSdist,
    },
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
            # No native object is pickled: code for it would be a seventh of the C file.
            "auto_pickle": False,
        },
        emit_linenums=DEBUG,
    ),
)
