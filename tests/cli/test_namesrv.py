"""`pyledger namesrv`: ready, asked, stopped; settings of both forms; what it says when it cannot start."""

import signal
from pathlib import Path

import pytest

from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.command import RemotingCommand
from tests.cli.command_line import pyledger, spawn
from tests.servers.namesrv.process import ask, serving


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_namesrv_answers_once_ready_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0") as (process, address):
        assert address.startswith("127.0.0.1:")
        assert ask(address, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        put = RemotingCommand.request(
            RequestCode.PUT_KV_CONFIG, ext_fields={"namespace": "N", "key": "k", "value": "v"}
        )
        assert ask(address, put).code == 16
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, "")
        assert "name server closed" in err
    assert not list(tmp_path.iterdir()), "nothing is written unless a pair is put"


def test_namesrv_takes_upstreams_properties_and_says_what_has_no_effect(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(
        f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\ndefaultThreadPoolNums=8\norderMessageEnable=true\n"
    )
    with serving(tmp_path, "--config", str(conf), "--admin") as (process, address):
        put = RemotingCommand.request(
            RequestCode.PUT_KV_CONFIG, ext_fields={"namespace": "N", "key": "k", "value": "v"}
        )
        assert ask(address, put).code == 0
        shown = ask(address, RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG))
        assert b"orderMessageEnable=true" in bytes(shown.body)
        process.terminate()
        _, err = process.communicate(timeout=100)
        assert "settings have no effect here settings=defaultThreadPoolNums" in err
    assert (tmp_path / "kv.json").exists()


def test_namesrv_takes_toml(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.toml"
    conf.write_text("[namesrv]\nport = 0\n[net]\nconnections_max = 5\n")
    with serving(tmp_path, "--config", str(conf)) as (_, address):
        assert ask(address, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("listenPrt=1", "namesrv.conf: listenPrt: unknown setting"),
        ("clusterTest=true", "clusterTest: 'true' is not supported"),
        ("listenPort=x", "listenPort: 'x' is not a whole number"),
    ],
)
def test_namesrv_names_a_wrong_setting(tmp_path: Path, line: str, says: str) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(line)
    found = pyledger("namesrv", "--config", conf)
    assert (found.code, says in found.err) == (2, True), found.err


@pytest.mark.parametrize(
    "server",
    [
        ["broker"],
        ["namesrv"],
        ["dledger", "node", "--group", "g", "--id", "n0", "--peers", "n0-127.0.0.1:0", "--store", "STORE"],
        ["bookie", "serve", "STORE", "--dev", "1"],
        ["autorecovery", "serve", "-m", "sqlite:none"],
    ],
    ids=lambda words: words[0],
)
def test_no_server_starts_with_a_misspelt_table(tmp_path: Path, server: list[str]) -> None:
    """It would start without TLS and access control that the table asks for."""
    conf = tmp_path / "server.toml"
    conf.write_text('[Tls]\nserver_mode = "enforcing"\n')
    found = pyledger(*(tmp_path / "s" if word == "STORE" else word for word in server), "-c", conf)
    assert (found.code, found.out) == (2, "")
    assert found.err == f"pyledger: {conf}: [Tls]: unknown section; did you mean tls?\n"


@pytest.mark.parametrize(
    "address", ["9876", ":9876", "a:b", "a:65536", "a:" + "9" * 5000, "x" * 300 + ":1", "a..b:1", "\udcff:1"]
)
def test_namesrv_names_a_wrong_address(address: str) -> None:
    found = pyledger("namesrv", "--listen", address)
    assert found.code == 2
    assert "is not an address" in found.err


def test_namesrv_names_an_address_that_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0") as (_, address):
        found = spawn("namesrv", "--listen", address)
        assert found.code == 3
        assert f"cannot listen on {address}" in found.err
        assert found.out == ""
