"""`pyledger export`: every form holds the same messages, whole or not at all."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.command_line import own_case, pyledger

SELECTIONS: list[list[str]] = [
    [],
    ["--topic", "alpha", "--queue", "1"],
    ["--tags", "TagA || TagB"],
    ["--key", "key-451"],
    ["--from", "3", "--to", "9"],
    ["--since", "2026-11-21T09:23:39.500"],
    ["--limit", "11"],
    ["--tail", "11"],
    ["--order", "log"],
    ["--order", "log", "--from", "100000", "--to", "200000"],
    ["--order", "log", "--tail", "20", "--limit", "5"],
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_case("clean-5").unpack(tmp_path_factory.mktemp("clean"))


def read_table(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as found:
        return found.read_all().to_pylist()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "arrow", "parquet"])
@pytest.mark.parametrize("selection", SELECTIONS, ids=" ".join)
def test_all_forms_hold_what_cat_prints(selection: list[str], kind: str, clean: Path, tmp_path: Path) -> None:
    order = [] if "--order" in selection else ["--order", "queue"]
    wanted = pyledger("cat", clean, "--json", "--body", "base64", *order, *selection).json
    assert wanted
    out = tmp_path / f"out.{kind}"
    columns = "topic,queueId,queueOffset,tags,keys,bodyLength,msgId"
    found = pyledger("export", clean, out, *selection, "--columns", columns, "--json")
    assert found.code == 0, found.err
    assert found.json[0] == {
        "kind": "exported", "file": str(out), "format": kind, "messages": len(wanted),
        "sizeBytes": out.stat().st_size,
    }  # fmt: skip
    if kind == "jsonl":
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    elif kind == "csv":
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = read_table(out)
    names = columns.split(",")
    assert all(list(row) == names for row in rows)

    def shown(row: dict[str, Any]) -> list[str]:
        return ["" if row[name] is None else str(row[name]) for name in names]

    assert list(map(shown, rows)) == list(map(shown, wanted))
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_bodies_are_unpacked_unless_asked_for(tmp_path: Path) -> None:
    case = own_case("compressed-5")
    store = case.unpack(tmp_path)
    packed = {m["physicalOffset"] for m in case.of_kind("message") if m.get("plainSha256")}
    rows = {}
    for option in ([], ["--compressed"]):
        out = tmp_path / "out.arrow"
        options = ["--columns", "physicalOffset,body", "--force", *option]
        assert pyledger("export", store, out, *options).code == 0
        rows[bool(option)] = {row["physicalOffset"]: row["body"] for row in read_table(out)}
    assert {offset for offset, body in rows[False].items() if body != rows[True][offset]} == packed


def test_nothing_is_overwritten_unasked(clean: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    found = pyledger("export", clean, out)
    assert found.code == 2
    assert "--force" in found.err
    assert out.read_text() == "precious"
    assert pyledger("export", clean, out, "--force").code == 0
    assert out.read_text() != "precious"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_failed_export_leaves_nothing(kind: str, tmp_path: Path) -> None:
    store = own_case("flights-5").unpack(tmp_path)
    victim = pyledger("cat", store, "--json").json[15_000]
    log = store / "commitlog" / f"{victim['physicalOffset'] // 4194304 * 4194304:020}"
    with log.open("r+b") as file:
        file.seek(victim["physicalOffset"] % 4194304 + 100)
        file.write(b"\xff\xff")
    out = tmp_path / f"out.{kind}"
    found = pyledger("export", store, out)
    assert found.code == 1
    assert str(victim["physicalOffset"]) in found.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    skipping = pyledger("export", store, out, "--on-corrupt", "skip", "--json")
    assert skipping.json[0]["messages"] == 19_999


@pytest.mark.parametrize("kind", ["jsonl", "csv", "arrow", "parquet"])
def test_wrong_columns_topics_and_places(kind: str, clean: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out.{kind}"
    columns = pyledger("export", clean, out, "--columns", "topic,bdoy")
    assert (columns.code, "'bdoy'" in columns.err) == (2, True)
    twice = pyledger("export", clean, out, "--columns", "topic, tags,topic")
    assert (twice.code, "'topic' twice" in twice.err) == (2, True)
    topic = pyledger("export", clean, out, "--topic", "gama")
    assert (topic.code, "there is gamma" in topic.err) == (2, True)
    place = pyledger("export", clean, tmp_path / "none" / f"out.{kind}")
    assert place.code == 3
    assert place.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_place_for_an_export(tmp_path: Path) -> None:
    store = own_case("clean-5").unpack(tmp_path)
    (tmp_path / "link").symlink_to(store / "commitlog")
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "fifo.csv")
    before = sorted(tmp_path.rglob("*"))
    for place in ("store/out.csv", "store/consumequeue/out.csv", "link/out.csv", "folder.csv", "fifo.csv"):
        found = pyledger("export", store, tmp_path / place, "--force")
        assert (found.code, place in found.err) == (2, True), found.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_named_like_a_draft_is_kept(clean: Path, tmp_path: Path) -> None:
    other = tmp_path / "out.csv.part"
    other.write_text("precious")
    assert pyledger("export", clean, tmp_path / "out.csv").code == 0
    assert other.read_text() == "precious"
