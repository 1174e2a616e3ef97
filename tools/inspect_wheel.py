"""Checks whether a wheel for Linux keeps what its name promises.

python tools/inspect_wheel.py WHEEL ...
"""

import io
import re
import sys
import zipfile
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

WHEEL_BYTES_MAX = 4 << 20
ELF_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
LIBRARIES = {
    "linux-gnu": re.compile(r"(libc|libdl|libm|libpthread|librt|ld-linux-.*)\.so\.\d+"),
    "linux-musl": re.compile(r"libc\.so|libc\.musl-.*"),
}
"""What every system has: before 2.34 some of glibc was in files beside libc."""


def system_of(tag: str) -> str:
    """The system in the name of an extension module: `linux-gnu` or `linux-musl`."""
    return "linux-musl" if "musllinux" in tag else "linux-gnu"


def tag_of(wheel: Path) -> tuple[str, str, str]:
    """Python, ABI and platform in the name of a wheel."""
    python, abi, platform = wheel.stem.split("-")[-3:]
    return python, abi, platform


def _modules(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".so" in Path(name).name}


def libraries(elf: ELFFile) -> tuple[list[str], list[str]]:
    """Names of the libraries that a module loads, and the folders in which it looks for them."""
    needed, paths = [], []
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for entry in section.iter_tags():
                kind = entry.entry.d_tag.removeprefix("DT_").lower()
                if kind == "needed":
                    needed.append(getattr(entry, kind))
                elif kind in {"rpath", "runpath"}:
                    paths.append(getattr(entry, kind))
    return needed, paths


def newest_glibc(elf: ELFFile) -> tuple[int, ...]:
    """Highest version of glibc of which a symbol is needed; empty without any."""
    names = [
        version.name
        for section in elf.iter_sections()
        if isinstance(section, GNUVerNeedSection)
        for _, versions in section.iter_versions()
        for version in versions
    ]
    found = [
        tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names if name[:6] == "GLIBC_"
    ]
    return max(found, default=())


def problems_of_module(name: str, content: bytes, wheel: Path) -> list[str]:
    """What is wrong with one extension module, a sentence each."""
    _, abi, platform = tag_of(wheel)
    machine = next(machine for machine in ELF_MACHINES if platform.endswith(machine))
    system = system_of(platform)
    elf = ELFFile(io.BytesIO(content))
    found = []
    suffix = f".cpython-{abi.removeprefix('cp')}-{machine}-{system}.so"
    if not name.endswith(suffix):
        found.append(f"{name} does not end with {suffix}")
    if elf["e_machine"] != ELF_MACHINES[machine]:
        found.append(f"{name} is for {elf['e_machine']}, the wheel for {machine}")
    needed, paths = libraries(elf)
    found += [f"{name} needs {library}" for library in needed if not LIBRARIES[system].fullmatch(library)]
    found += [f"{name} looks for libraries in {path}" for path in paths if not path.startswith("$ORIGIN")]
    glibc = newest_glibc(elf)
    if system == "linux-musl" and glibc:
        found.append(f"{name} needs symbols of glibc")
    elif match := re.match(r"manylinux_(\d+)_(\d+)_", platform):
        promised = tuple(map(int, match.groups()))
        if glibc > promised:
            needs, has = (".".join(map(str, version)) for version in (glibc, promised))
            found.append(f"{name} needs glibc {needs}, the wheel promises {has}")
    return found


def problems(wheel: Path) -> list[str]:
    """What is wrong with a wheel, a sentence each."""
    found = []
    if (size := wheel.stat().st_size) > WHEEL_BYTES_MAX:
        found.append(f"{wheel.name} has {size:,} bytes, more than {WHEEL_BYTES_MAX:,}")
    modules = _modules(wheel)
    if [Path(name).name.split(".")[0] for name in modules] != ["_core"]:
        found.append(f"{wheel.name} must have one extension module, _core; it has {sorted(modules)}")
    for name, content in modules.items():
        found += problems_of_module(name, content, wheel)
    return found


def summary(wheel: Path) -> str:
    """Size and needs of a wheel in a few words."""
    (content,) = _modules(wheel).values()
    elf = ELFFile(io.BytesIO(content))
    glibc = ".".join(map(str, newest_glibc(elf)))
    c_library = f"glibc {glibc}" if glibc else "musl"
    return f"{wheel.stat().st_size / (1 << 20):.1f} MiB, {c_library}, {' '.join(libraries(elf)[0])}"


def main(paths: list[str]) -> int:
    """Print a line for each wheel; 1 if one has a problem."""
    failures = 0
    for path in map(Path, paths):
        found = problems(path)
        failures += bool(found)
        print(f"{path.name}: {'; '.join(found) or summary(path)}")
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
