"""Options that need more than a folder, and that no option lacks a test or a line in the page."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType
from pyspark_pyledger import options, write_options
from pyspark_pyledger.commit import publish
from pyspark_pyledger.staging import stage_rows, staging_folder
from pyspark_pyledger.write_options import parse_write_options, sink_name
from pyspark_pyledger.writers import StreamWriter

from pyledger import arrow
from pyledger.client.blocking.producer import Producer
from pyledger.config.client import ClientConfig
from pyledger.errors import BrokerError, ConfigError
from pyledger.model.message import Message
from tests.servers.ha.pair import brokers
from tests.spark.test_brokers import SEND_TIMEOUT_MS
from tests.spark.ways import batch_table
from tests.support.source_tree import ROOT

OTHER_NAMES = {"path", "paths", "checkpointLocation"}
"""Of Spark itself."""
USERS = """
[[users]]
username = "spark"
password = "spark-secret"
userType = "Super"
"""


def test_every_option_has_a_line_and_a_test() -> None:
    known = {*options.option_names(), *write_options.option_names()} - OTHER_NAMES
    rows = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|([^|]*)\|", page(), re.MULTILINE))))
    assert not known - rows, "options without a line in docs/guide/spark.md"
    tests = "".join(file.read_text() for file in sorted((ROOT / "tests" / "spark").glob("test_*.py")))
    given = set(re.findall(r"\b(\w+)\"?(?:: |=|\", )", tests))
    assert not known - given, "options that no test gives"


def page() -> str:
    return (ROOT / "docs" / "guide" / "spark.md").read_text()


def test_requests_are_signed(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(USERS)
    rules.chmod(0o600)
    keys = ClientConfig(access_key="spark", secret_key="spark-secret")

    def ask(address: str) -> None:
        with Producer("spark", address, client=keys, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
            producer.send(Message("orders", b"one"))
        named = {"namesrv": address, "topic": "orders"}
        assert batch_table(**named, accessKey="spark", secretKey="spark-secret").num_rows == 1
        for wrong in ({}, {"accessKey": "spark", "secretKey": "wrong"}):
            with pytest.raises(BrokerError, match="rejected with code 16"):
                batch_table(**named, **wrong)

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            await pair.start(0, "async_master", acl_path=str(rules))
            await asyncio.to_thread(ask, pair.name_server.address)

    asyncio.run(main())


def test_keys_are_not_shown() -> None:
    found = options.parse_read_options({"namesrv": "a:1", "topic": "t", "secretKey": "spark-secret"})
    assert "spark-secret" not in repr(found)


def test_rows_are_spread_over_as_many_queues_as_asked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    given = {"path": str(store), "topic": "t", "queueCount": "3", "mappedFileSizeCommitLog": "65536"}
    parsed = parse_write_options(given)
    rows = pa.table({"body": [b"%d" % number for number in range(9)]})
    staged = stage_rows(staging_folder(str(store), "job"), rows.to_batches(), "t")
    assert publish(parsed, "job", None, [staged]) == 9
    assert arrow.scan(store).read_all()["queueId"].to_pylist() == [0, 1, 2] * 3
    assert {file.stat().st_size for file in (store / "commitlog").iterdir()} == {65536}
    for name in ("queueCount", "mappedFileSizeCommitLog"):
        for wrong in ("0", "-1", "many"):
            with pytest.raises(ConfigError, match=f"{name}: .* at least 1"):
                parse_write_options({**given, name: wrong})
    with pytest.raises(ConfigError, match=r"mappedFileSizeCommitLog: 100 is out of range; allowed is 4096"):
        parse_write_options({**given, "mappedFileSizeCommitLog": "100"})
    for scheme in ("file:", "file://"):
        assert parse_write_options({**given, "path": f"{scheme}{store}"}).path == str(store)
        assert batch_table(path=f"{scheme}{store}").num_rows == 9


TABLE = {"owner": "ann", "comment": "x", "provider": "pyledger", "is_managed_location": "true"}
"""What Spark's catalog adds to the options of a table."""


def test_what_the_catalog_knows_of_a_table_is_no_option(tmp_path: Path) -> None:
    for parse in (options.parse_read_options, parse_write_options):
        assert parse({**TABLE, "path": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"path: is missing; .* in SQL use CREATE TEMPORARY VIEW"):
        options.parse_read_options(TABLE)


@pytest.mark.parametrize("parse", [options.parse_read_options, parse_write_options])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://bucket/store", "is not supported: .* mount the file system"),
        ("s3a://bucket/store", "is not supported"),
        ("hdfs://host:9000/store", "is not supported"),
        ("dbfs:/store", "is not supported"),
        ("file:/no/such/broker-*", "patterns are not supported; give a list"),
        ("/no/such/broker-[ab]", "patterns are not supported"),
        ("/no/such/{a,b}", "patterns are not supported"),
    ],
)
def test_paths_that_are_not_supported_are_called_so(
    parse: Callable[..., Any], path: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse({"path": path})


@pytest.mark.parametrize("name", ["a[1]", "b*", "s3:", "{x}"])
def test_a_folder_may_be_called_like_a_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    for path in (str(tmp_path / name), f"file:{tmp_path / name}"):
        assert options.parse_read_options({"path": path}).paths == (str(tmp_path / name),)


def test_a_stream_is_told_from_others_by_its_name_or_its_checkpoint(tmp_path: Path) -> None:
    plain = {"path": str(tmp_path / "store"), "topic": "t"}
    assert sink_name(parse_write_options({**plain, "sinkId": "nightly"})) == "nightly"
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with pytest.raises(ConfigError, match="sinkId"):
        sink_name(parse_write_options({**plain, "checkpointLocation": str(checkpoint)}))
    (checkpoint / "metadata").write_text('{"id": "5b1d"}')
    assert sink_name(parse_write_options({**plain, "checkpointLocation": f"file:{checkpoint}"})) == "5b1d"
    with pytest.raises(ConfigError, match="is not a name"):
        parse_write_options({**plain, "sinkId": "../other"})
    schema = StructType().add("body", StringType())
    with pytest.raises(ConfigError, match="checkpointLocation: is missing"):
        StreamWriter(schema, parse_write_options(plain))
