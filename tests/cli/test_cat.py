"""`pyledger cat`: what Java finds in the same folders, and every way to choose from it."""

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyledger.cli.output import printable
from tests.cli.command_line import own_case, pyledger
from tests.golden.archive import GoldenCase

Line = dict[str, Any]


def place(line: Line) -> tuple[str, int, int]:
    return line["topic"], line["queueId"], line["queueOffset"]


DAMAGED_AT_THE_END = {"torn-clean-5"}
"""A clean shutdown left them with half a record at their end, which Java reads as far as it is valid."""


def bare(line: Line) -> Line:
    """A line without what only one side prints."""
    kept = {k: v for k, v in line.items() if k not in ("msgId", "plainSha256")}
    plain = line.get("plainSha256")
    return kept if plain in (None, line["bodySha256"]) else {**kept, "plainSha256": plain}


def test_queue_order_is_what_java_reads(golden: GoldenCase, pristine_store: Path) -> None:
    if not golden.loads:
        pytest.skip("upstream refuses this folder")
    found = pyledger("cat", pristine_store, "--json", "--order", "queue", "--body", "sha256")
    assert found.code == int(golden.name in DAMAGED_AT_THE_END), found.err
    wanted = golden.of_kind("message")
    assert sorted(map(bare, found.json), key=place) == sorted(map(bare, wanted), key=place)
    assert [place(line) for line in found.json] == sorted(map(place, wanted))


def test_log_order_has_the_records_of_no_queue_too(golden: GoldenCase, pristine_store: Path) -> None:
    if not golden.loads or golden.name.startswith("inner-batch"):
        pytest.skip("upstream refuses this folder, or a record is several messages")
    found = pyledger("cat", pristine_store, "--json", "--body", "sha256")
    assert found.code == int(golden.name in DAMAGED_AT_THE_END), found.err
    wanted = [*golden.of_kind("message"), *golden.of_kind("unindexed")]
    assert list(map(bare, found.json)) == [bare(x) for x in sorted(wanted, key=lambda x: x["physicalOffset"])]


def test_a_folder_that_java_refuses_is_read_as_far_as_it_is_sound(tmp_path: Path) -> None:
    store = own_case("short-file-5").unpack(tmp_path)
    found = pyledger("cat", store, "--json")
    assert found.code == 1
    assert "the log ends at physical offset" in found.err
    assert len(found.json) > 90
    offsets = [line["physicalOffset"] for line in found.json]
    assert offsets == sorted(offsets)
    skipping = pyledger("cat", store, "--json", "--on-corrupt", "skip")
    assert (skipping.code, skipping.json) == (0, found.json)
    assert "the log ends at physical offset" in skipping.err


def test_bytes_that_are_no_records_are_a_problem(tmp_path: Path) -> None:
    """A log file of random bytes is a store by its names alone."""
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / ("0" * 20)).write_bytes(Random(5).randbytes(1 << 16))
    for words in (("cat",), ("info",), ("grep", "x"), ("cat", "--json"), ("verify",)):
        found = pyledger(*words, store)
        assert found.code == 1, words
        assert "no record starts here" in found.err + found.out
    assert "shutdown:   clean, but its log ends in damage" in pyledger("info", store).out
    out = tmp_path / "out.jsonl"
    assert pyledger("export", store, out).code == 1
    assert out.read_text() == ""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_case("clean-5").unpack(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def everything(clean: Path) -> list[Line]:
    return pyledger("cat", clean, "--json").json


MIDDLE = 180_000


def middle_ms(lines: list[Line]) -> int:
    return int(lines[len(lines) // 2]["storeTimestamp"])


CHOICES: dict[str, tuple[list[str], Callable[[Line, int], bool]]] = {
    "topic": (["--topic", "beta"], lambda x, _: x["topic"] == "beta"),
    "topics": (["--topic", "beta", "--topic", "alpha"], lambda x, _: x["topic"] in ("alpha", "beta")),
    "queues": (["--queue", "1", "--queue", "3"], lambda x, _: x["queueId"] in (1, 3)),
    "from": (["--from", str(MIDDLE)], lambda x, _: x["physicalOffset"] >= MIDDLE),
    "to": (["--to", str(MIDDLE)], lambda x, _: x["physicalOffset"] < MIDDLE),
    "since": (["--since", "MS"], lambda x, ms: x["storeTimestamp"] >= ms),
    "until": (["--until", "ISO"], lambda x, ms: x["storeTimestamp"] < ms),
    "tags": (["--tags", "TagA || TagB"], lambda x, _: x["tags"] in ("TagA", "TagB")),
    "all tags": (["--tags", "*"], lambda x, _: bool(x)),
    "key": (["--key", "key-451"], lambda x, _: "key-451" in (x["keys"] or "").split(" ")),
    "client id": (
        ["--key", "19C35BE411F423A7404CC2CDAF70C458"],
        lambda x, _: x["properties"].get("UNIQ_KEY") == "19C35BE411F423A7404CC2CDAF70C458",
    ),
    "several": (
        ["--topic", "alpha", "--queue", "0", "--until", "MS"],
        lambda x, ms: x["topic"] == "alpha" and x["queueId"] == 0 and x["storeTimestamp"] < ms,
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_choosing(choice: str, clean: Path, everything: list[Line]) -> None:
    options, wanted = CHOICES[choice]
    ms = middle_ms(everything)
    moment = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    options = [{"MS": str(ms), "ISO": moment}.get(option, option) for option in options]
    expected = [line for line in everything if wanted(line, ms)]
    assert len(expected) > 0
    found = pyledger("cat", clean, "--json", *options)
    assert found.json == expected
    assert pyledger("cat", clean, "--json", *options, "--limit", "2").json == expected[:2]
    assert pyledger("cat", clean, "--json", *options, "--tail", "2").json == expected[-2:]


def test_choosing_in_queue_order_means_queue_offsets(clean: Path, everything: list[Line]) -> None:
    wanted = sorted((x for x in everything if x["kind"] == "message"), key=place)
    found = pyledger("cat", clean, "--json", "--order", "queue", "--from", "5", "--to", "7").json
    assert found == [line for line in wanted if 5 <= line["queueOffset"] < 7]
    tail = pyledger("cat", clean, "--json", "--order", "queue", "--tail", "60", "--limit", "3").json
    assert tail == wanted[-60:][:3]


def test_no_message_is_no_error(clean: Path) -> None:
    assert pyledger("cat", clean, "--limit", "0").out == ""
    found = pyledger("cat", clean, "--topic", "alpha", "--key", "nobody has this")
    assert (found.code, found.out, found.err) == (0, "", "")


def test_a_topic_that_is_not_there_is_told_with_those_that_are(clean: Path) -> None:
    found = pyledger("cat", clean, "--topic", "gama", "--topic", "beta", "--json")
    assert found.code == 2
    assert found.error["message"].endswith("store; there is gamma")
    assert found.error["exitCode"] == 2
    assert found.json
    assert {line["topic"] for line in found.json} == {"beta"}
    assert "SCHEDULE_TOPIC_XXXX, alpha, beta, gamma" in pyledger("cat", clean, "--topic", "flights").err


@pytest.mark.parametrize("wrong", ["yesterday", "12x", "2024-13-01"])
def test_a_time_that_is_none_is_a_usage_error(clean: Path, wrong: str) -> None:
    found = pyledger("cat", clean, "--since", wrong)
    assert found.code == 2
    assert "'--since'" in found.err
    assert "15m" in found.err


def test_ages_count_back_from_now(clean: Path) -> None:
    assert pyledger("cat", clean, "--since", "36500d", "--json").lines


def test_escapes_cost_memory_by_what_they_print() -> None:
    """A few KB that unpack to megabytes of control characters are no way to stop a reader."""
    text = "a\0\u2028\ud800é" * 200_000
    tracemalloc.start()
    try:
        shown = printable(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown == "a\\x00\\u2028\\ud800é" * 200_000
    assert peak < 4 * len(shown)


def test_text_is_one_printable_line_a_message(clean: Path, everything: list[Line]) -> None:
    found = pyledger("cat", clean)
    assert len(found.lines) == len(everything)
    assert all(character.isprintable() or character == "\u3000" for line in found.lines for character in line)
    first = everything[0]
    assert f"{first['topic']}/{first['queueId']}@{first['queueOffset']}" in found.lines[0]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("auto", {"body", "bodyEncoding"}),
        ("utf8", {"body", "bodyEncoding"}),
        ("base64", {"body", "bodyEncoding"}),
        ("sha256", {"bodySha256", "plainSha256"}),
        ("none", set()),
    ],
)
def test_forms_of_a_body(clean: Path, body: str, names: set[str]) -> None:
    line = pyledger("cat", clean, "--json", "--limit", "1", "--body", body).json[0]
    assert {name for name in line if "body" in name.lower() or "Sha" in name} == names | {
        "bodyLength",
        "bodyCRC",
    }
