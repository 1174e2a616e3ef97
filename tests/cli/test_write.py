"""`pyledger write`: what goes in comes out; what is wrong names its line; what was written stays."""

import csv
import io
import json
import signal
import subprocess
from pathlib import Path

import pytest

from pyledger.cli.store.rows import queue_of_key
from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from tests.cli.command_line import COMMAND, ENVIRONMENT, Finished, on_terminal, pyledger, spawn

SMALL = ("--set", "mappedFileSizeCommitLog=1MiB", "--set", "mappedFileSizeConsumeQueue=20000")
SMALL += ("--set", "maxHashSlotNum=1000", "--set", "maxIndexNum=4000")


def write(store: Path, file: Path | str, *options: str) -> Finished:
    return pyledger("write", store, file, "--topic", "t", *SMALL, *options)


def rows(count: int) -> list[dict[str, object]]:
    return [
        {"id": f"k{n % 7}", "n": n, "kind": ("a", "b", None)[n % 3], "text": "größe 🚀"} for n in range(count)
    ]


def test_json_lines_are_stored_as_they_stand(tmp_path: Path) -> None:
    lines = [json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(rows(5000))]
    (tmp_path / "in.jsonl").write_text("\n".join(["", *lines, "  "]), encoding="utf-8")
    found = write(tmp_path / "s", tmp_path / "in.jsonl", "--key", "id", "--tag", "kind", "--json")
    assert found.code == 0, found.err
    assert found.json == [{"kind": "written", "store": str(tmp_path / "s"), "topic": "t", "messages": 5000}]
    read = pyledger("cat", tmp_path / "s", "--json").json
    assert [line["body"] for line in read] == lines
    assert [(line["keys"], line["tags"]) for line in read] == [(row["id"], row["kind"]) for row in rows(5000)]
    assert all(line["queueId"] == queue_of_key(line["keys"], 4) for line in read)
    assert pyledger("verify", tmp_path / "s").err == "valid\n"
    assert not (tmp_path / "s" / "abort").exists()


def test_csv_rows_become_json_objects(tmp_path: Path) -> None:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerows([["a", "b"], ["1", 'x,"y"\n2'], ["", "ü"]])
    (tmp_path / "in.csv").write_text(text.getvalue(), encoding="utf-8", newline="")
    assert write(tmp_path / "s", tmp_path / "in.csv", "--key", "a", "--queues", "2").code == 0
    read = pyledger("cat", tmp_path / "s", "--json").json
    assert [json.loads(line["body"]) for line in read] == [{"a": "1", "b": 'x,"y"\n2'}, {"a": "", "b": "ü"}]
    assert [line["keys"] for line in read] == ["1", None]


def test_without_a_key_messages_go_round(tmp_path: Path) -> None:
    found = spawn("write", tmp_path / "s", "--topic", "t", *SMALL, "--queues", "3", text='{"a":1}\n' * 7)
    assert (found.code, found.err) == (0, f"7 messages appended to topic t in {tmp_path / 's'}\n")
    assert [line["queueId"] for line in pyledger("cat", tmp_path / "s", "--json").json] == [
        0,
        1,
        2,
        0,
        1,
        2,
        0,
    ]


def test_a_second_run_appends(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"a":1}\n')
    for _ in range(3):
        assert pyledger("write", tmp_path / "s", tmp_path / "in.jsonl", "--topic", "t", *SMALL).code == 0
    assert len(pyledger("cat", tmp_path / "s").lines) == 3


@pytest.mark.parametrize(
    ("key", "queue"), [("a", 1), ("hello", 2), ("key-1", 3), ("polygenelubricants", 0), ("größe", 1), ("", 0)]
)
def test_keys_choose_the_queue_that_java_chooses(key: str, queue: int) -> None:
    """Java: `Math.abs(key.hashCode() % 4)`."""
    assert queue_of_key(key, 4) == queue


@pytest.mark.parametrize(
    ("name", "text", "line", "problem"),
    [
        ("x.jsonl", '{"k":"1"}\n{"k":\n', "line 2", "not JSON"),
        ("x.jsonl", '{"k":"1"}\n\n[1]\n', "line 3", "an array, not a JSON object"),
        ("x.jsonl", '{"k":"1"}\n{"j":"1"}\n', "line 2", "no field 'k'; there are j"),
        ("x.jsonl", '{"k":"1"}\n{"k":%s}\n' % ("1" * 5000), "line 2", "more than 4,300 digits"),
        ("x.jsonl", '{"k":"1"}\n%s\n' % ("[" * 100_000), "line 2", "is nested too deeply"),
        ("x.jsonl", '{"k":"1"}\n{"k":"%s"}\n' % ("1" * 40_000), "line 2", "the limit is 32767"),
        ("x.csv", "k,l\n1,2\n1,2,3\n", "line 3", "3 cells, the header has 2"),
        ("x.csv", 'k,l\n1,2\n1,"2\n', "line 3", "unexpected end of data"),
        ("x.csv", "j\n1\n", "line 2", "no field 'k'"),
        ("x.csv", "k,k\n1,1\n", "line 1", "'k' twice"),
    ],
)
def test_a_wrong_line_is_named_and_what_stood_before_stays(
    name: str, text: str, line: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    found = write(tmp_path / "s", tmp_path / name, "--key", "k")
    assert found.code == 1
    *lines, error = found.err.splitlines()
    assert error.startswith(f"pyledger: {line}")
    assert problem in error
    stored = len(pyledger("cat", tmp_path / "s").lines) if (tmp_path / "s").exists() else 0
    assert lines == ([f"1 message appended before this; kept in {tmp_path / 's'}"] if stored else [])
    assert stored == (0 if problem in ("'k' twice", "no field 'k'") else 1)


def test_input_that_is_wrong_from_the_start_makes_no_store(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\n")
    assert write(tmp_path / "s", tmp_path / "x.jsonl").code == 1
    assert write(tmp_path / "s", tmp_path / "none.jsonl").code == 3
    assert write(tmp_path / "s", tmp_path).code == 3
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--set", "nothing=1"], 2), (["--set", "flushDiskType"], 2), (["--topic", "no such/topic"], 2)],
)
def test_a_wrong_setting_or_name_is_usage(options: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    found = write(tmp_path / "s", tmp_path / "x.jsonl", *options)
    assert found.code == code
    assert "this is a bug" not in found.err


def test_ctrl_c_keeps_what_was_written(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "write", str(tmp_path / "s"), "--topic", "t", *SMALL],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b'{"a":1}\n' * 3000)
    process.stdin.flush()
    log = tmp_path / "s" / "commitlog" / ("0" * 20)
    while not (log.exists() and any(log.read_bytes()[1000:2000])):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert not (tmp_path / "s" / "abort").exists()
    stored = len(pyledger("cat", tmp_path / "s").lines)
    assert stored > 5
    assert f"{stored:,} messages appended before this; kept".encode() in err


def test_two_writers_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    with MessageStore.open(tmp_path / "s", mapped_file_size_bytes=1 << 20):
        found = write(tmp_path / "s", tmp_path / "x.jsonl")
    assert found.code == 3
    assert "another process" in found.err


def test_nothing_of_a_message_reaches_the_terminal_as_control(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202e\r\n"
    with MessageStore.open(tmp_path / "s", mapped_file_size_bytes=1 << 20) as store:
        store.put(Message("t", evil.encode(), tags="a\x1bb", keys="k\x07"))
    shown = on_terminal("cat", tmp_path / "s") + on_terminal(
        "dump", tmp_path / "s/commitlog" / ("0" * 20), "--limit", "2"
    )
    assert not set(shown.replace("\r\n", "")) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    assert "\\x1b]0;owned\\x07" in shown
