"""Each command's answer: its JSON fields, and what it finds, mends and counts."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from pyledger.cli.commands import COMMANDS
from tests.cli.command_line import own_case, pyledger
from tests.golden.archive import GoldenCase, fingerprint
from tests.golden.dledger_folders import golden_node
from tests.golden.ledger_recordings import unpack_bookie

MESSAGE: dict[str, type | tuple[type, ...]] = {
    "kind": str, "topic": str, "queueId": int, "queueOffset": int, "physicalOffset": int, "storeSize": int,
    "layout": int, "tagsCode": int, "tags": (str, type(None)), "keys": (str, type(None)), "properties": dict,
    "bodyLength": int, "bodyCRC": int, "body": str, "bodyEncoding": str, "bornTimestamp": int,
    "storeTimestamp": int, "bornHost": str, "storeHost": str, "sysFlag": int, "flag": int,
    "reconsumeTimes": int, "preparedTransactionOffset": int, "msgId": str,
}  # fmt: skip
STORE = {
    "kind", "path", "clean", "logFiles", "logFileSizeBytes", "logBytesOnDisk", "archivedFiles", "indexFiles",
    "minPhysicalOffset", "maxPhysicalOffset", "endStatus", "endProblem", "firstStoreTimestamp",
    "lastStoreTimestamp", "checkpoint", "topics", "queues", "messages",
}  # fmt: skip
QUEUE = {
    "kind", "topic", "queueId", "minOffset", "maxOffset", "messages", "firstStoreTimestamp",
    "lastStoreTimestamp",
}  # fmt: skip


def is_message(line: dict[str, Any]) -> bool:
    return list(line) == list(MESSAGE) and all(isinstance(line[name], kind) for name, kind in MESSAGE.items())


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_case("flights-5").unpack(tmp_path_factory.mktemp("flights"))


def test_info_of_every_folder(golden: GoldenCase, pristine_store: Path) -> None:
    found = pyledger("info", pristine_store, "--json")
    damaged = golden.name in ("torn-clean-5", "short-file-5")
    assert found.code == int(damaged), found.err
    store, *others = found.json
    assert store.keys() == STORE
    queues = {
        f"{q['topic']}/{q['queueId']}": [q["minOffset"], q["maxOffset"]]
        for q in others
        if q["kind"] == "queue"
    }
    assert all(line.keys() == QUEUE for line in others if line["kind"] == "queue")
    if golden.loads:
        # Java of 4.9 makes queues that never get a message.
        wanted = {name: held for name, held in golden.summary["queues"].items() if held != [0, 0]}
        assert {name: held for name, held in queues.items() if held != [0, 0]} == wanted
        assert store["maxPhysicalOffset"] == golden.summary["maxPhysicalOffset"]
        assert store["minPhysicalOffset"] == golden.summary["minPhysicalOffset"]
        assert store["clean"] is not golden.summary["abortFile"]
    text = pyledger("info", pristine_store, "--all")
    assert text.code == int(damaged)
    assert all(name.split("/")[0] in text.out for name in queues)


def test_info_times_are_those_of_the_messages(tmp_path: Path) -> None:
    case = own_case("rolled-5")
    found = pyledger("info", case.unpack(tmp_path), "--json").json
    for line in (line for line in found if line["kind"] == "queue"):
        inside = [
            m
            for m in case.of_kind("message")
            if (m["topic"], m["queueId"]) == (line["topic"], line["queueId"])
        ]
        assert line["firstStoreTimestamp"] == min(m["storeTimestamp"] for m in inside)
        assert line["lastStoreTimestamp"] == max(m["storeTimestamp"] for m in inside)


def test_messages_have_one_shape(flights: Path) -> None:
    for arguments in (
        ("cat", flights, "--limit", "3"),
        ("grep", "LAX", flights, "--limit", "3"),
        ("query", flights, "--topic", "flights", "--key", "N14228", "--limit", "3"),
        ("query", flights, "--id", "0A00000700002A9F0000000000000000"),
    ):
        found = pyledger(*arguments, "--json").json
        assert found
        assert all(map(is_message, found))


def test_grep_finds_what_python_finds(flights: Path) -> None:
    bodies = [line["body"] for line in pyledger("cat", flights, "--json").json]
    wanted = [body for body in bodies if '"dest":"LAX"' in body and '"carrier":"VX"' in body]
    assert wanted
    pattern = '"carrier":"VX".*"dest":"LAX"'
    assert [x["body"] for x in pyledger("grep", pattern, flights, "--json").json] == wanted
    assert [x["body"] for x in pyledger("grep", pattern, flights, "--json", "--tail", "2").json] == wanted[
        -2:
    ]
    assert pyledger("grep", "-c", pattern, flights).out == f"{len(wanted)}\n"
    assert pyledger("grep", "-c", pattern, flights, "--json").json == [
        {"kind": "count", "count": len(wanted)}
    ]
    assert pyledger("grep", "-ciF", '"DEST":"lax"', flights).out != "0\n"
    assert pyledger("grep", "-cF", ".*", flights) == pyledger("grep", "-c", "no such text", flights)
    assert pyledger("grep", "-c", "no such text", flights).code == 0


def test_query_answers_as_the_index(golden: GoldenCase, pristine_store: Path) -> None:
    for line in golden.of_kind("key")[:3]:
        found = pyledger("query", pristine_store, "--topic", line["topic"], "--key", line["key"], "--json")
        offsets = [message["physicalOffset"] for message in found.json]
        assert found.code == 0
        assert set(offsets) <= set(line["physicalOffsets"])
        wanted = [
            m["physicalOffset"]
            for m in golden.of_kind("message")
            if m["topic"] == line["topic"] and line["key"] in (m["keys"] or "").split(" ")
        ]
        assert set(wanted) <= set(offsets) or len(line["physicalOffsets"]) == 64


def test_query_narrows_by_time_and_misses_quietly(flights: Path) -> None:
    query = ("query", flights, "--topic", "flights", "--key", "N14228", "--json")
    times = [line["storeTimestamp"] for line in pyledger(*query).json]
    later = pyledger(*query, "--since", str(times[2])).json
    assert [line["storeTimestamp"] for line in later] == [ms for ms in times if ms >= times[2]]
    earlier = pyledger(*query, "--until", str(times[2])).json
    assert [line["storeTimestamp"] for line in earlier] == [ms for ms in times if ms < times[2]]
    assert pyledger("query", flights, "--topic", "flights", "--key", "none", "--json").code == 0
    assert "there is flights" in pyledger("query", flights, "--topic", "flight", "--key", "none").err


@pytest.mark.parametrize("offset", ["0000000000000001", "00000000FFFFFFFF"])
def test_query_with_an_id_that_no_message_has(flights: Path, offset: str) -> None:
    found = pyledger("query", flights, "--id", f"0A00000700002A9F{offset}")
    assert (found.code, found.out) == (1, "")
    assert "has this id" in found.err
    assert "repair" not in found.err


def test_verify_distinguishes_valid_from_damaged(tmp_path: Path) -> None:
    store = own_case("flights-5").unpack(tmp_path)
    assert (pyledger("verify", store).code, pyledger("verify", store).err) == (0, "valid\n")
    log = store / "commitlog" / ("0" * 20)
    victim = pyledger("cat", store, "--json").json[500]["physicalOffset"]
    with log.open("r+b") as file:
        file.seek(victim + 100)
        file.write(b"\xff\xff")
    before = fingerprint(store)
    found = pyledger("verify", store, "--json")
    assert found.code == 1
    assert fingerprint(store) == before
    *findings, summary = found.json
    assert {"kind", "severity", "finding", "file", "offset", "detail"} == findings[0].keys()
    assert {one["kind"] for one in findings} == {"finding"}
    damaged = [one for one in findings if one["finding"] == "damaged-record"]
    assert [one["file"] for one in damaged] == [str(log)]
    assert [one["offset"] for one in damaged] == [victim]
    counted = {name: sum(one["severity"] == name for one in findings) for name in ("error", "note")}
    assert summary == {
        "kind": "summary",
        "valid": False,
        "errors": counted["error"],
        "notes": counted["note"],
        "clean": True,
    }
    text = pyledger("verify", store)
    assert text.code == 1
    assert f"error: {log} @{victim}: damaged-record: " in text.out
    assert text.err.startswith("not valid: ")
    cat = pyledger("cat", store, "--json")
    assert cat.code == 1
    assert f"physical offset {victim}" in cat.err
    skipping = pyledger("cat", store, "--json", "--on-corrupt", "skip")
    assert skipping.code == 0
    assert len(skipping.lines) == 19_999
    assert "skipped" in skipping.err


def test_verify_tells_a_crash_apart(tmp_path: Path) -> None:
    found = pyledger("verify", own_case("crash-5").unpack(tmp_path))
    assert found.code == 0
    assert found.err.startswith("valid; ")
    assert "recovers it" in found.err


def test_repair_says_what_it_would_do_then_does_it(tmp_path: Path) -> None:
    store = own_case("torn-zero-5").unpack(tmp_path)
    before = fingerprint(store)
    plan = pyledger("repair", store, "--dry-run", "--json")
    assert fingerprint(store) == before
    *steps, summary = plan.json
    assert plan.code == 0
    assert steps
    assert {"kind", "action", "file", "offset", "sizeBytes", "detail", "done"} == steps[0].keys()
    assert summary == {
        "kind": "summary", "steps": len(steps), "complete": True, "sideFolder": None, "done": False
    }  # fmt: skip
    assert "would truncate" in pyledger("repair", store, "--dry-run").out
    done = pyledger("repair", store, "--json")
    assert done.code == 0
    assert [step["action"] for step in done.json[:-1]] == [step["action"] for step in steps]
    assert Path(done.json[-1]["sideFolder"]).is_dir()
    assert pyledger("verify", store).code == 0
    assert pyledger("repair", store).err == "nothing to repair\n"


def test_rebuild_gives_the_queues_back(tmp_path: Path) -> None:
    store = own_case("no-queues-5").unpack(tmp_path)
    before = pyledger("cat", store, "--order", "queue", "--json").out
    found = pyledger("rebuild", store, "--json")
    assert found.code == 0
    assert {"kind", "records", "queues", "indexFiles", "seconds"} == found.json[0].keys()
    assert found.json[0]["queues"] == len(list(store.glob("consumequeue/*/*")))
    assert pyledger("cat", store, "--order", "queue", "--json").out == before


def test_archive_and_unarchive(tmp_path: Path) -> None:
    store = own_case("rolled-5").unpack(tmp_path)
    before, log = pyledger("cat", store, "--json").out, fingerprint(store / "commitlog")
    planned = pyledger("archive", store, "--older-than", "0s", "--dry-run", "--json").json
    assert fingerprint(store / "commitlog") == log
    done = pyledger("archive", store, "--older-than", "0s", "--json", "--block-size", "64KiB").json
    assert [line["file"] for line in done] == [line["file"] for line in planned]
    assert all(0 < line["compressedBytes"] < line["sizeBytes"] and line["done"] for line in done)
    info = pyledger("info", store, "--json").json[0]
    assert info["archivedFiles"] == len(done) == info["logFiles"] - 1
    assert info["logBytesOnDisk"] == sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    assert f"{len(done)} archived" in pyledger("info", store).out
    assert pyledger("cat", store, "--json").out == before
    assert pyledger("verify", store).code == 0
    shown = pyledger("dump", done[0]["file"] + ".lz4", "--json", "--limit", "2").json
    assert shown[1]["physicalOffset"] == 0
    back = pyledger("unarchive", store, "--json").json
    assert [line["offset"] for line in back] == [line["offset"] for line in reversed(done)]
    assert {name: digest for name, (_, _, digest) in fingerprint(store / "commitlog").items()} == {
        name: digest for name, (_, _, digest) in log.items()
    }
    assert pyledger("archive", store, "--older-than", "0s", "--block-size", "5").code == 2


def test_dump_shows_every_kind_of_file(tmp_path: Path) -> None:
    for case in ("broker-5", "inner-batch-5", "cq-ext-5"):
        store = own_case(case).unpack(tmp_path / case)
        for path in (path for path in store.rglob("*") if path.is_file()):
            found = pyledger("dump", path, "--json", "--limit", "20")
            assert found.code == 0, found.err
            head = found.json[0]
            assert (head["kind"], head["path"]) == ("file", str(path))
            assert head["sizeBytes"] == path.stat().st_size
            assert pyledger("dump", path, "--limit", "20").code == 0


def test_dump_of_a_log_shows_each_record(flights: Path) -> None:
    found = pyledger("dump", flights / "commitlog" / ("0" * 20), "--json", "--limit", "6").json
    wanted = pyledger("cat", flights, "--json", "--limit", "5").json
    assert [line["physicalOffset"] for line in found[1:]] == [line["physicalOffset"] for line in wanted]
    assert [line["properties"] for line in found[1:]] == [line["properties"] for line in wanted]


def test_a_body_that_cannot_be_unpacked_does_not_end_cat(tmp_path: Path) -> None:
    case = own_case("compressed-5")
    store = case.unpack(tmp_path)
    packed = next(m for m in case.of_kind("message") if m.get("plainSha256") and m["sysFlag"] & 1)
    log = store / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    flag_at = packed["physicalOffset"] + 36
    # Another packing is claimed than was used; no digest covers the flag.
    flag = packed["sysFlag"] & ~0x700 | (0x100 if packed["sysFlag"] & 0x700 != 0x100 else 0x300)
    data[flag_at : flag_at + 4] = flag.to_bytes(4)
    log.write_bytes(data)
    for order in ("log", "queue"):
        found = pyledger("cat", store, "--json", "--order", order, "--body", "sha256")
        assert found.code == 0
        bad = [line for line in found.json if line["physicalOffset"] == packed["physicalOffset"]]
        assert [line["plainSha256"] for line in bad] == [None]
        assert bad[0]["bodyProblem"]
        assert bad[0]["bodySha256"] == packed["bodySha256"]
    assert pyledger("cat", store, "--json").code == 0
    assert "(the body " in pyledger("cat", store).out
    assert pyledger("grep", "-c", ".", store).code == 0


def test_bench_measures_everything(tmp_path: Path) -> None:
    found = pyledger("bench", "--messages", "1000", "--folder", tmp_path, "--json")
    assert found.code == 0, found.err
    names = ["file-write", "file-read", "file-sync", "append", "append-batch", "get", "scan", "append-sync"]
    assert [line["name"] for line in found.json] == names
    assert all(line["messagesPerSecond"] > 0 for line in found.json)
    assert all((line["ratio"] is None) == (line["baseline"] is None) for line in found.json)
    assert list(tmp_path.iterdir()) == []
    assert "append, one call each" in pyledger("bench", "--messages", "1000").out


def examples(name: str) -> list[str]:
    """Command lines that a command's help gives."""
    return [line.strip() for line in pyledger(name, "--help").lines if line.startswith("    pyledger ")]


SERVERS = {"namesrv", "broker", "serve"}
OVER_THE_NETWORK = {
    "produce",
    "consume",
    "topic",
    "group",
    "cluster",
    "mqadmin",
    "ha",
    "ledger",
    "autorecovery",
}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SERVERS | OVER_THE_NETWORK])
def test_examples_in_help_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_case("flights-5").unpack(tmp_path)
    shutil.copytree(golden_node("filler").path, tmp_path / "dledger-n0")
    unpack_bookie("sorted-clean", tmp_path / "bookie-1")
    monkeypatch.chdir(tmp_path)
    rows = [json.loads(line["body"]) for line in pyledger("cat", "store", "--limit", "20", "--json").json]
    Path("flights.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = list(rows[0])
    Path("flights.csv").write_text(
        "\n".join([",".join(names), *(",".join(map(str, r.values())) for r in rows)])
    )
    found = examples(name)
    assert found
    for line in found:
        _, *arguments = shlex.split(line)
        assert arguments[0] == name
        if name == "query" and "--id" in arguments:
            arguments[arguments.index("--id") + 1] = "0A00000700002A9F0000000000000000"
        if name == "export":
            arguments.append("--force")
        done = pyledger(*arguments)
        assert done.code == 0, (line, done.err)
        assert done.out or done.err
