"""The config files of a store: what Java wrote is read right, what we write has Java's very bytes."""

from pathlib import Path

import pytest

from pyledger.errors import StoreFormatError
from pyledger.model.topic import DataVersion, Permission, TopicConfig
from pyledger.store.files.config_files import ConsumerOffsets, DelayOffsets, SubscriptionGroups, TopicTable
from pyledger.wire.fastjson import parse
from tests.golden.archive import GoldenCase, golden_cases

BROKERS = [case for case in golden_cases() if case.name.startswith("broker-")]


@pytest.fixture(params=BROKERS, ids=lambda case: case.name)
def broker(request: pytest.FixtureRequest) -> GoldenCase:
    case: GoldenCase = request.param
    return case


@pytest.fixture
def config(broker: GoldenCase, tmp_path: Path) -> Path:
    return broker.unpack(tmp_path) / "config"


def test_topics_of_a_broker_are_read(config: Path) -> None:
    topics = TopicTable.read(config).topics
    assert topics["SCHEDULE_TOPIC_XXXX"].write_queue_count == 18
    assert topics["TBW102"].permission == Permission.READ | Permission.WRITE | Permission.INHERIT
    assert topics["%RETRY%beta_group"] == TopicConfig("%RETRY%beta_group", 1, 1)
    assert all(topic.name == name for name, topic in topics.items())


def test_consumer_offsets_of_a_broker_are_read(config: Path, broker: GoldenCase) -> None:
    offsets = ConsumerOffsets.read(config).offsets
    queues = {"4": {0: 101, 1: 100, 2: 99, 3: 99}, "5": {0: 100, 1: 99, 2: 102, 3: 99}}[broker.version[0]]
    assert offsets["alpha", "beta_group"] == queues
    assert offsets["%RETRY%beta_group", "beta_group"].keys() == {0}


def test_delay_offsets_of_a_broker_are_read(config: Path) -> None:
    offsets = DelayOffsets.read(config).offsets
    assert offsets.keys() <= set(range(1, 19))
    assert all(value > 0 for value in offsets.values())


def test_subscription_groups_of_a_broker_are_read(config: Path) -> None:
    found = SubscriptionGroups.read(config)
    assert {"beta_group", "TOOLS_CONSUMER", "SELF_TEST_C_GROUP"} <= found.groups.keys()
    assert found.groups["beta_group"]["retryMaxTimes"] == 16
    assert found.groups["beta_group"]["groupName"] == "beta_group"
    assert found.forbidden == {}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TopicTable, "topics.json"),
        (DelayOffsets, "delayOffset.json"),
        (SubscriptionGroups, "subscriptionGroup.json"),
    ],
)
def test_rewriting_gives_javas_bytes(
    config: Path, broker: GoldenCase, kind: type[TopicTable | DelayOffsets | SubscriptionGroups], name: str
) -> None:
    before = (config / name).read_bytes()
    kind.read(config).write(config)
    if broker.version.startswith("5"):
        assert (config / name).read_bytes() == before
    else:
        wanted, found = (parse(text.decode()) for text in (before, (config / name).read_bytes()))
        table = next(iter(key for key in wanted if key.endswith("Table") and key != "forbiddenTable"))
        assert found[table].keys() == wanted[table].keys()
    assert (config / f"{name}.bak").read_bytes() == before


def test_rewritten_consumer_offsets_have_the_same_content(config: Path) -> None:
    first = ConsumerOffsets.read(config)
    first.write(config)
    assert ConsumerOffsets.read(config) == first
    assert '"alpha@beta_group":{0:' in (config / "consumerOffset.json").read_text()


def test_every_json_file_of_a_broker_is_parsed(config: Path) -> None:
    parsed = [parse(path.read_text()) for path in config.glob("*.json*")]
    assert len(parsed) >= 8
    assert all(isinstance(document, dict) for document in parsed)


def test_no_files_give_empty_tables(tmp_path: Path) -> None:
    assert TopicTable.read(tmp_path) == TopicTable()
    assert ConsumerOffsets.read(tmp_path / "none") == ConsumerOffsets()
    assert DelayOffsets.read(tmp_path).offsets == {}
    assert SubscriptionGroups.read(tmp_path).groups == {}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"offsetTable":[]}',
        '{"offsetTable":{"1":"x"}}',
        '{"offsetTable":{1:{}}}',
        '{"dataVersion":[1]}',
        "{",
        "7",
    ],
)
def test_a_file_of_another_shape_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "delayOffset.json").write_text(text)
    with pytest.raises(StoreFormatError) as caught:
        DelayOffsets.read(tmp_path)
    assert str(tmp_path / "delayOffset.json") in str(caught.value)


def test_numbers_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "delayOffset.json").write_text("{'offsetTable':{'1':'7',2:8,},'dataVersion':{'counter':'3'}}")
    assert DelayOffsets.read(tmp_path) == DelayOffsets({1: 7, 2: 8}, DataVersion(counter=3))


def test_next_version_counts() -> None:
    assert DataVersion(3, 1, 10).next(20) == DataVersion(4, 1, 20)
