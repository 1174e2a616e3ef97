"""Without an extra: what needs it says so at the start, in one line; what does not need it works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyledger import Message, MessageStore
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.bodies.subscription import CheckClientConfig, Subscription
from pyledger.wire.remoting.command import RemotingCommand
from tests.cli.command_line import COMMAND, ENVIRONMENT, on_terminal
from tests.servers.namesrv.process import ask

OPTIONAL = ("google", "kazoo", "pyarrow", "pyspark", "rich", "uvloop", "yaml")


def without(folder: Path, modules: tuple[str, ...]) -> dict[str, str]:
    """An environment where these modules cannot be imported."""
    hidden = folder / "hidden"
    hidden.mkdir()
    for name in modules:
        (hidden / f"{name}.py").write_text(f"raise ModuleNotFoundError('hidden', name={name!r})\n")
    return ENVIRONMENT | {"PYTHONPATH": f"{hidden}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (["bookie", "serve", "{}", "--dev", "1"], "google", "ledger"),
        (["bookie", "serve", "{}", "--metadata", "zk://127.0.0.1:1/ledgers"], "google", "ledger"),
        (["bookie", "serve", "{}", "--metadata", "zk://127.0.0.1:1/ledgers"], "kazoo", "ledger"),
        (["cluster", "format", "zk://127.0.0.1:1/ledgers"], "kazoo", "ledger"),
        (["broker", "--config", "{}/broker.toml"], "yaml", "server"),
        (["export", "{}/store", "{}/all.parquet"], "pyarrow", "arrow"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else one,
)
def test_a_missing_extra_is_named_at_the_start(
    tmp_path: Path, arguments: list[str], module: str, extra: str
) -> None:
    (tmp_path / "acl.yml").write_text("accounts: []\n")
    (tmp_path / "acl.yml").chmod(0o600)
    (tmp_path / "broker.toml").write_text(f'[broker]\nacl_path = "{tmp_path}/acl.yml"\nport = 0\n')
    command = [*COMMAND, *(one.format(tmp_path) for one in arguments)]
    found = subprocess.run(
        command, env=without(tmp_path, (module,)), capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 3
    assert found.stderr.startswith("pyledger: ")
    assert found.stderr.endswith(f": pip install 'pyledger[{extra}]'\n")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "use", "extra"),
    [
        ("pyarrow", "import pyledger.arrow", "arrow"),
        ("google", "import pyledger.bookkeeper", "ledger"),
        ("pyspark", "from pyledger import spark; spark.setup()", "spark"),
    ],
)
def test_a_program_gets_an_error_that_names_the_extra(module: str, use: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from pyledger.errors import MissingExtraError\n"
        f"try: {use}\n"
        "except MissingExtraError as error: print(error.extra, isinstance(error, ImportError), error)"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    assert found.startswith(f"{extra} True ")
    assert found.endswith(f": pip install 'pyledger[{extra}]'\n")


def test_a_terminal_without_rich_shows_lines_with_tabs(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put(Message("orders", b"one"))
    environment = without(tmp_path, ("rich",))
    shown = on_terminal("info", str(tmp_path / "store"), PYTHONPATH=environment["PYTHONPATH"])
    assert "\r\norders\t1\t" in shown


def test_a_broker_without_extras_filters_by_sql92(tmp_path: Path) -> None:
    settings = {"listenPort": 0, "storePathRootDir": tmp_path / "store", "enablePropertyFilter": "true"}
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = subprocess.Popen(
        [*COMMAND, "broker", "--config", str(config), "--log-level", "error"],
        stdout=subprocess.PIPE, text=True, env=without(tmp_path, OPTIONAL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        for expression, code in (("a > 1", 0), ("a >", 23), ("a" * 20_000, 23)):
            subscription = Subscription(topic="T", sub_string=expression, expression_type="SQL92")
            body = CheckClientConfig(group="g", subscription_data=subscription).encode()
            answer = ask(address, RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
            assert (answer.code, len(answer.remark or "") < 500) == (code, True), answer.remark
    finally:
        process.kill()
        process.communicate()
