"""Every option of every command with nonsense: a documented exit code, one error, never a stack trace."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pyledger.cli.commands import COMMANDS, cli
from pyledger.cli.parameters import Number
from tests.cli.command_line import Finished, pyledger, spawn

LEAF = tuple[tuple[str, ...], click.Command]
NONSENSE = (
    "", "x", "-1", "9223372036854775808", "9" * 5000, "1e9", "NaN", "\u0663", "\udcff", "\x00", "x" * 70_000,
    "a;b", "a=b", "x" * 300 + ":1", "\udcff:1", "a..b:1", "a:" + "9" * 5000, "n0-a..b:1", "zk://a..b:1/l",
)  # fmt: skip
NONSENSE_TEXT = ("", "\udcff", "9" * 5000)
"""For the many commands of mqadmin."""
DOCUMENTED = {0, 1, 2, 3}
SERVING = {"namesrv", "broker", "serve", "dledger node", "bookie serve", "autorecovery serve", "consume"}
"""They would run until a signal: only what is rejected before that is tried."""
LONG = {"sim", "bench"}
"""They would simulate or measure for seconds."""
UNREACHABLE = "127.0.0.1:1"


def leaves(command: click.Command, context: click.Context, path: tuple[str, ...] = ()) -> Iterator[LEAF]:
    """All commands that do something, with the words that name them."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, context, (*path, name))


LEAVES = dict(leaves(cli, click.Context(cli)))


def value_of(parameter: click.Parameter) -> str:
    """Something that a required parameter accepts."""
    if isinstance(parameter.type, click.Choice):
        return str(parameter.type.choices[0])
    if isinstance(parameter.type, Number):
        return str(parameter.type.least)
    return "sqlite:none.db" if parameter.name == "metadata" else "none"


def words(path: tuple[str, ...], command: click.Command, given: dict[str, str]) -> list[str]:
    """A command line: what is given, and values for all else that is required."""
    options, arguments = [], []
    for one in command.params:
        if one.name not in given and not one.required:
            continue
        value = given.get(one.name or "", value_of(one))
        if isinstance(one, click.Argument):
            arguments.append(value)
        elif getattr(one, "is_flag", False):
            options.append(one.opts[-1])
        else:
            long = next((name for name in one.opts if name.startswith("--")), None)
            options += [f"{long}={value}"] if long else [one.opts[0], value]
    if any(one.name == "yes" for one in command.params):
        options.append("--yes")
    return [*path, *options, "--json", "--", *arguments]


def check(found: Finished, said: list[str]) -> None:
    """An exit code of the table, and an error as JSON where it is not 0."""
    shown = ascii(([word[:40] for word in said], found.code, found.err[-300:]))
    assert found.code in DOCUMENTED, shown
    assert "Traceback" not in found.err, shown
    for line in found.lines:
        json.loads(line)
    if found.code in {2, 3}:
        assert found.error["exitCode"] == found.code, shown
        assert found.error["message"], shown


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command makes goes away, and no server answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", UNREACHABLE)


def test_every_command_has_json() -> None:
    without = [
        " ".join(path) for path, one in LEAVES.items() if not any("--json" in p.opts for p in one.params)
    ]
    assert without == []


@pytest.mark.parametrize("group", COMMANDS)
def test_nonsense_ends_with_a_documented_code(group: str) -> None:
    for path, command in LEAVES.items():
        if path[0] != group or path[0] in LONG:
            continue
        for target in command.params:
            if getattr(target, "is_flag", False):
                continue
            is_rejected = isinstance(target.type, Number) or target.name == "listen"
            if " ".join(path) in SERVING and not is_rejected:
                continue
            for nonsense in NONSENSE_TEXT if group == "mqadmin" else NONSENSE:
                said = words(path, command, {target.name or "": nonsense})
                check(pyledger(*said), said)


@pytest.mark.parametrize("group", sorted(LONG))
def test_nonsense_in_numbers_is_rejected(group: str) -> None:
    [(path, command)] = [(path, one) for path, one in LEAVES.items() if path[0] == group]
    for target in command.params:
        if isinstance(target.type, Number | click.Choice):
            for nonsense in ("x", "-1", "9" * 30, ""):
                said = words(path, command, {target.name or "": nonsense})
                found = pyledger(*said)
                check(found, said)
                assert found.code == 2, said


def wrong_paths(folder: Path) -> dict[str, Path]:
    """Paths of every kind that a store, a file of settings or an output is not."""
    (folder / "file").write_text("hello\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 16)
    (folder / "directory").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "socket"))
    for name in ("directory", "fifo", "dangling"):
        log = folder / f"store of a {name}" / "commitlog"
        log.mkdir(parents=True)
        first = log / ("0" * 20)
        if name == "directory":
            first.mkdir()
        elif name == "fifo":
            os.mkfifo(first)
        else:
            first.symlink_to("nowhere")
    made = {one.name: one for one in folder.iterdir()}
    return made | {
        "missing": folder / "none",
        "below a missing one": folder / "none" / "none",
        "below a file": folder / "file" / "none",
        "long name": folder / ("n" * 300),
        "long": folder.joinpath(*["d" * 100] * 60),
        "undecodable": folder / "x\udcff",
        "device": Path("/dev/zero"),
    }


@pytest.mark.parametrize("group", [name for name in COMMANDS if name not in LONG])
def test_paths_of_the_wrong_kind_end_with_a_documented_code(group: str, tmp_path: Path) -> None:
    for path, command in LEAVES.items():
        if path[0] != group:
            continue
        for number, target in enumerate(command.params):
            is_metadata = target.name == "metadata" and path[0] != "mqadmin"
            if not isinstance(target.type, click.Path | click.File) and not is_metadata:
                continue
            if " ".join(path) in SERVING and target.name != "config_path":
                continue
            folder = tmp_path / f"{len(path)}-{path[-1]}-{number}"
            folder.mkdir()
            for kind, wrong in wrong_paths(folder).items():
                if " ".join(path) in SERVING and kind in {"empty", "file"}:
                    continue  # settings that are none: the server would run
                said = words(
                    path, command, {target.name or "": f"sqlite:{wrong}" if is_metadata else str(wrong)}
                )
                check(pyledger(*said), said)


def test_a_real_process_says_the_same(tmp_path: Path) -> None:
    """A sample of both walks with the interpreter's own arguments and exit."""
    for said, code in (
        (["cat", str(tmp_path), "--limit", "9" * 30, "--json"], 2),
        (["cat", str(tmp_path / "none"), "--json"], 3),
        (["topic", "list", "-n", UNREACHABLE, "--json"], 3),
        (["topic", "delete", "T", "-n", UNREACHABLE, "--json"], 2),
        (["mqadmin", "createUser", "-b", UNREACHABLE, "-u", os.fsdecode(b"\xff"), "-p", "p", "--json"], 2),
    ):
        found = spawn(*said)
        check(found, said)
        assert found.code == code, (said, found.err)


def test_settings_are_checked_before_the_input_is_read(tmp_path: Path) -> None:
    """The input is a pipe that never ends: the command must not wait for it."""
    source = tmp_path / "pipe"
    os.mkfifo(source)
    found = spawn("write", tmp_path / "s", source, "--topic", "T", "--set", "maxMessageSize=much")
    assert found.code == 2
    assert "maxMessageSize" in found.err or "max_message_size_bytes" in found.err


def test_deleting_asks_and_takes_no_for_an_answer() -> None:
    found = spawn("topic", "delete", "T", "-n", UNREACHABLE, text="n\n")
    assert (found.code, "nothing was deleted" in found.err) == (1, True)
    unanswered = spawn("group", "delete", "G", "-n", UNREACHABLE, text="")
    assert (unanswered.code, "use --yes" in unanswered.err) == (2, True)
