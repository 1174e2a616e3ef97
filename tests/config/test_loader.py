from pathlib import Path

import pytest

from pyledger.config.bookie import BookieConfig
from pyledger.config.broker import BrokerConfig
from pyledger.config.client import ClientConfig
from pyledger.config.dledger import DLedgerConfig
from pyledger.config.fields import Fixed
from pyledger.config.loader import ConfigFile, load
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import TlsConfig
from pyledger.config.store import StoreConfig
from pyledger.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "pyledger.toml"
    path.write_text(text)
    return path


def test_environment_wins_over_file_and_file_over_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, '[store]\nretention_hours = 24\nflushDiskType = "SYNC_FLUSH"\n[net]\nx = 1\n')
    environment = {"PYLEDGER_STORE_RETENTION_HOURS": "12", "HOME": "/nowhere"}
    assert ConfigFile(path, environment).load(StoreConfig, "store") == StoreConfig(
        retention_hours=12, flush_disk_type="sync"
    )


def test_environment_wins_over_upstreams_name_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[store]\nfileReservedTime = 24\n")
    file = ConfigFile(path, {"PYLEDGER_STORE_RETENTION_HOURS": "12"})
    assert file.load(StoreConfig, "store").retention_hours == 12


def test_options_win_and_are_checked_together_with_the_rest(tmp_path: Path) -> None:
    environment = {"PYLEDGER_CLIENT_SECRET_KEY": "s", "PYLEDGER_CLIENT_ACCESS_KEY": "other"}
    path = written(tmp_path, '[client]\nunitName = "u"\nAccessKey = "another"\n')
    found = ConfigFile(path, environment).load(
        ClientConfig, "client", {"access_key": "a", "name_servers": None}
    )
    assert found == ClientConfig(access_key="a", secret_key="s", unit_name="u")
    # Each alone is wrong.
    del environment["PYLEDGER_CLIENT_ACCESS_KEY"]
    load(ClientConfig, "client", environment, {"access_key": "a"})
    file = properties_file(tmp_path, f"storePathCommitLog={tmp_path}/commitlog\nbrokerIP1=host\n")
    options = {"store_path": str(tmp_path), "advertised_host": "10.0.0.1"}
    assert ConfigFile(file, {}).load(BrokerConfig, "broker", options).store_folder == str(tmp_path)


def test_no_file_and_no_variables_give_the_defaults(tmp_path: Path) -> None:
    assert load(StoreConfig, "store", {}) == StoreConfig()
    assert ConfigFile(written(tmp_path, ""), {}).load(StoreConfig, "store") == StoreConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[store]\nretention_hour = 1\n", "did you mean retention_hours?"),
        ("[store\n", "is not TOML"),
        ("store = 1\n", "pyledger.toml: store: is not a table; write [store]"),
        ("[[store]]\n", "store: is not a table"),
        ('[Tls]\nserver_mode = "enforcing"\n', "pyledger.toml: [Tls]: unknown section; did you mean tls?"),
        ('[brokr]\nacl_path = "a.json"\n', "[brokr]: unknown section; did you mean broker?"),
        ("[[brokr]]\n", "[brokr]: unknown section"),
        ('tsl.server_mode = "enforcing"\n', "[tsl]: unknown section; did you mean tls?"),
        ('acl_path = "a.json"\n[store]\n', "acl_path: is in no section; write it below its [section]"),
        ("store = " + "[" * 100_000, "is not TOML"),
        ('[store]\nretention_hours = "x"\n', "not a whole number"),
    ],
)
def test_error_names_the_problem_of_a_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        ConfigFile(written(tmp_path, text), {}).load(StoreConfig, "store")
    assert problem in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ConfigFile(tmp_path / "none.toml", {})
    assert "none.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("PYLEDGER_TLS_SERVER_MOD", "PYLEDGER_TLS_SERVER_MODE"),
        ("PYLEDGER_TSL_SERVER_MODE", "PYLEDGER_TLS_SERVER_MODE"),
        ("PYLEDGER_TLS_server_mode", "PYLEDGER_TLS_SERVER_MODE"),
        ("PYLEDGER_SERVER_MODE", "PYLEDGER_TLS_SERVER_MODE"),
        ("pyledger_tls_server_mode", "PYLEDGER_TLS_SERVER_MODE"),
    ],
)
def test_a_misspelt_variable_is_an_error(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(TlsConfig, "tls", {variable: "enforcing"})
    assert f"did you mean {meant}?" in str(caught.value)


def test_variables_of_others_are_let_be() -> None:
    """Of other sections, of commands, and those that Kubernetes makes for a service of this name."""
    others = (
        "DLEDGER_STORE_DATA_FILE_BYTES",
        "NET_X",
        "METADATA",
        "PASSWORD",
        "PORT",
        "SERVICE_HOST",
        "PORT_9876_TCP",
    )
    environment = {f"PYLEDGER_{name}": "x" for name in others}
    for kind, section in (
        (DLedgerConfig, "dledger"), (BrokerConfig, "broker"), (TlsConfig, "tls"), (BookieConfig, "bookie"),
    ):  # fmt: skip
        assert load(kind, section, environment) == kind()


def properties_file(folder: Path, text: str) -> Path:
    path = folder / "namesrv.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_properties_serve_several_sections_and_the_environment_wins(tmp_path: Path) -> None:
    path = properties_file(
        tmp_path,
        "# comment\nlistenPort=9999\nfileReservedTime = 24\nbrokerIP1=10.0.0.1\nrocketmqHome=/opt\nempty=\n",
    )
    file = ConfigFile(path, {"PYLEDGER_STORE_RETENTION_HOURS": "12"})
    store = file.load(StoreConfig, "store")
    assert (store.store_port, store.retention_hours, store.store_host) == (9999, 12, "10.0.0.1")
    assert file.load(NamesrvConfig, "namesrv").port == 9999, "two sections may know the same key"
    assert file.ignored({}) == ("rocketmqHome",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listenPrt=1", "did you mean listenPort?"),
        ("LISTENPORT=1", "LISTENPORT: unknown setting"),
        ("listen_port=1", "did you mean listenPort?"),
        ("clusterTest=true", "'true' is not supported; leave it off"),
    ],
)
def test_unsafe_and_misspelt_properties_are_rejected(tmp_path: Path, text: str, problem: str) -> None:
    file = ConfigFile(properties_file(tmp_path, text), {})
    file.load(NamesrvConfig, "namesrv")
    with pytest.raises(ConfigError) as caught:
        file.ignored({"clusterTest": Fixed(("false",), "leave it off")})
    assert problem in str(caught.value)


def test_toml_serves_several_sections(tmp_path: Path) -> None:
    file = ConfigFile(written(tmp_path, "[store]\nretention_hours = 1\n[namesrv]\nlistenPort = 2\n"), {})
    assert file.load(StoreConfig, "store").retention_hours == 1
    assert file.load(NamesrvConfig, "namesrv").port == 2
    assert file.ignored({}) == ()


def test_tables_of_other_servers_are_listed_as_ignored(tmp_path: Path) -> None:
    file = ConfigFile(written(tmp_path, '[dledger]\n[tls]\nserver_mode = "enforcing"\n'), {})
    file.load(DLedgerConfig, "dledger")
    assert file.ignored({}) == ("[tls]",)


def test_the_ending_of_a_toml_file_may_be_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "PYLEDGER.TOML"
    path.write_text("tls.client_enabled = true\n")
    assert ConfigFile(path, {}).load(TlsConfig, "tls").client_enabled


def test_no_file_gives_the_defaults_of_every_section() -> None:
    assert ConfigFile(None, {}).load(NamesrvConfig, "namesrv") == NamesrvConfig()


def test_properties_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read"):
        ConfigFile(tmp_path / "none.conf")
    (tmp_path / "bytes.conf").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not text"):
        ConfigFile(tmp_path / "bytes.conf")
    (tmp_path / "value.conf").write_bytes(b"brokerName=\xcb\xf9")
    with pytest.raises(ConfigError, match=r"value\.conf: brokerName: is not text"):
        ConfigFile(tmp_path / "value.conf")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xef\xbb\xbflistenPort=9999\n", id="byte order mark"),
        pytest.param("# \u6240\u5c5e\u96c6\u7fa4\nlistenPort=9999\n".encode("gbk"), id="comment in GBK"),
    ],
)
def test_marks_and_comments_of_editors_do_not_stop_a_start(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_bytes(raw)
    file = ConfigFile(path, {})
    assert file.load(NamesrvConfig, "namesrv").port == 9999
    assert file.ignored({}) == ()


def test_a_file_that_sets_nothing_is_no_settings_file(tmp_path: Path) -> None:
    """A path of a wrong file must not start a server on its defaults."""
    path = tmp_path / "orders.conf"
    path.write_text("id,name,price\n1,tea,2\n")
    with pytest.raises(ConfigError, match="sets nothing; settings are lines such as"):
        ConfigFile(path, {})
    path.write_text("# nothing is changed\n\n")
    assert ConfigFile(path, {}).load(NamesrvConfig, "namesrv") == NamesrvConfig()


def test_toml_under_another_name_is_rejected(tmp_path: Path) -> None:
    """Read as properties its texts would keep their quotes: a store would lie in a folder of another name."""
    with pytest.raises(ConfigError, match=r"\[broker\] belongs to a TOML file; name the file \*\.toml"):
        ConfigFile(properties_file(tmp_path, '[broker]\nstore_path = "/data/store"\n'), {})


def test_a_setting_that_is_given_twice_is_named_as_in_the_file(tmp_path: Path) -> None:
    text = "journalDirectory=data/journal\njournalDirectories=/disk/journal\n"
    with pytest.raises(
        ConfigError, match="journalDirectories: the same setting as journalDirectory; give one"
    ):
        ConfigFile(properties_file(tmp_path, text), {}).load(BookieConfig, "bookie")


def test_wrong_value_is_named_as_it_was_written(tmp_path: Path) -> None:
    path = properties_file(tmp_path, "listenPort=many\n")
    with pytest.raises(ConfigError, match=r"namesrv\.conf: listenPort: 'many' is not a whole number"):
        ConfigFile(path, {}).load(NamesrvConfig, "namesrv")
    with pytest.raises(ConfigError, match=r"^port: 'few' is"):
        ConfigFile(None, {"PYLEDGER_NAMESRV_PORT": "few"}).load(NamesrvConfig, "namesrv")
