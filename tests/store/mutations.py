"""Damage to store folders, drawn from a seed: what disks, copies and other programs do to files."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

EXTREMES = (
    0,
    1,
    7,
    8,
    19,
    20,
    90,
    91,
    0x7F,
    0xFF,
    0x7FFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0xDAA320A7,
    0xCBD43194,
)
FAR = (0, -1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), -2147483649, -9223372036854775000)

Mutation = Callable[[random.Random, Path, list[Path]], str]


def mutate(store: Path, seed: int) -> list[str]:
    """Change a folder in one to four ways; return what was done."""
    draw = random.Random(seed)
    done = []
    for _ in range(draw.choice((1, 1, 2, 4))):
        files = [path for path in sorted(store.rglob("*")) if path.is_file()]
        done.append(draw.choices(MUTATIONS, WEIGHTS)[0](draw, store, files))
    return done


def pick_file(draw: random.Random, store: Path, files: list[Path]) -> Path:
    """Any kind of file as likely as any other, however many there are of a kind."""
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(path.relative_to(store).parts[0], []).append(path)
    return draw.choice(kinds[draw.choice(sorted(kinds))]) if kinds else store / "checkpoint"


def used_bytes(path: Path) -> int:
    """Bytes up to the last that is not zero."""
    return len(path.read_bytes().rstrip(b"\0")) if path.exists() else 0


def place_in(draw: random.Random, path: Path, width: int) -> int:
    """A position among the used bytes, or shortly behind them; often on a field's border."""
    end = used_bytes(path) + draw.choice((0, 0, 64))
    at = draw.randrange(max(1, end))
    return max(0, at - at % draw.choice((1, 1, 4, 20)) - draw.choice((0, width)))


def overwrite(path: Path, at: int, data: bytes) -> None:
    size = path.stat().st_size if path.exists() else 0
    with path.open("r+b" if size else "wb") as file:
        file.seek(at)
        file.write(data[: max(0, size - at)])


def flip_bits(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    at = place_in(draw, path, 1)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
    if byte:
        overwrite(path, at, bytes([byte[0] ^ 1 << draw.randrange(8)]))
    return f"flipped a bit at {at} of {path.name}"


def set_number(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    at = place_in(draw, path, 4)
    if draw.random() < 0.5:
        data = draw.choice((*EXTREMES, draw.randrange(1 << 32))).to_bytes(4, "big")
    else:
        data = draw.choice((*FAR, draw.randrange(1 << 20))).to_bytes(8, "big", signed=True)
    overwrite(path, at, data)
    return f"wrote {data.hex()} at {at} of {path}"


def set_record_length(draw: random.Random, store: Path, files: list[Path]) -> str:
    """Hit the lengths of records in particular: total size, body, topic, properties, queue id, offsets."""
    logs = [path for path in files if path.parent.name == "commitlog"]
    if not logs:
        return "no log"
    path = draw.choice(logs)
    data = path.read_bytes()
    starts = []
    at = data.find(b"\xda\xa3\x20")
    while at > 0 and len(starts) < 400:
        starts.append(at - 4)
        at = data.find(b"\xda\xa3\x20", at + 1)
    if not starts:
        return "no record"
    start = draw.choice(starts)
    at = start + draw.choice((0, 4, 8, 12, 20, 28, 36, 56, 84, 88 + draw.randrange(400)))
    value = draw.choice((*EXTREMES, draw.randrange(1 << 32)))
    overwrite(path, at, value.to_bytes(4, "big"))
    return f"wrote {value:#x} at {at - start} of the record at {start} of {path.name}"


def scramble(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    at, length = place_in(draw, path, 1), draw.choice((3, 40, 600, 5000))
    overwrite(path, at, draw.randbytes(length))
    return f"scrambled {length} bytes at {at} of {path}"


def wipe(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    at, length = place_in(draw, path, 1), draw.choice((1, 8, 100, 4096, 20000))
    overwrite(path, at, bytes(length))
    return f"zeroed {length} bytes at {at} of {path}"


def repeat(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    source, target, length = (
        place_in(draw, path, 1),
        place_in(draw, path, 1),
        draw.choice((20, 46, 200, 3000)),
    )
    overwrite(path, target, path.read_bytes()[source : source + length])
    return f"copied {length} bytes from {source} to {target} of {path}"


def cut(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    size = path.stat().st_size
    length = draw.choice(
        (0, 1, 19, 39, 4095, max(0, size - 1), draw.randrange(size + 1), draw.randrange(size + 1))
    )
    os.truncate(path, min(length, size))
    return f"cut {path} to {length}"


def extend(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    more = draw.choice((1, 20, 4096, path.stat().st_size))
    with path.open("ab") as file:
        file.write(draw.randbytes(more) if draw.random() < 0.5 else bytes(more))
    return f"extended {path} by {more}"


def swap(draw: random.Random, store: Path, files: list[Path]) -> str:
    one, other = pick_file(draw, store, files), pick_file(draw, store, files)
    if one != other:
        spare = store / "spare"
        shutil.move(one, spare)
        shutil.move(other, one)
        shutil.move(spare, other)
    return f"swapped {one} and {other}"


def remove(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    path.unlink(missing_ok=True)
    return f"removed {path}"


def rename(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    name = draw.choice(
        ("notes.txt", "0", f"{draw.randrange(1 << 34):020d}", "9" * 20, "-0000000000000000001", "größe")
    )
    target = path.with_name(name)
    if not target.exists():
        path.rename(target)
    return f"renamed {path} to {name}"


def replace_by_folder(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    path.unlink()
    path.mkdir()
    return f"made a folder of {path}"


def add_stranger(draw: random.Random, store: Path, files: list[Path]) -> str:
    path = pick_file(draw, store, files)
    parent = draw.choice([path.parent, *path.parents[:3]])
    parent = parent if parent.is_relative_to(store) else store
    stranger = parent / draw.choice(
        (".DS_Store", "core", f"{draw.randrange(1 << 32):020d}", "12", "%2e%2e", "a\nb")
    )
    if not stranger.exists():
        if draw.random() < 0.3:
            stranger.mkdir()
        else:
            stranger.write_bytes(draw.randbytes(draw.choice((0, 20, 3000))))
    return f"added {stranger}"


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, set_number, set_record_length, scramble, wipe, repeat, cut, extend, swap, remove, rename,
    replace_by_folder, add_stranger,
)  # fmt: skip
WEIGHTS = (4, 6, 8, 3, 2, 2, 3, 1, 1, 1, 1, 1, 1)
