"""The tables of a broker begin with what Java wrote into its files, and write the same again."""

from pathlib import Path

import pytest

from pyledger.config.delivery import DeliveryConfig
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.protocol.broker.consumer_offsets import OffsetTable
from pyledger.protocol.broker.delay_levels import DelaySchedule
from pyledger.protocol.broker.recall import RecallHandle
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.topics import BrokerTopics
from pyledger.store.files.config_files import ConsumerOffsets, DelayOffsets, SubscriptionGroups, TopicTable
from tests.golden.archive import golden_cases
from tests.golden.remoting_frames import recorded_frames

BROKERS = [case for case in golden_cases() if case.name.startswith("broker-")]


@pytest.fixture(params=BROKERS, ids=lambda case: case.name)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder: Path = request.param.unpack(tmp_path)
    return folder / "config"


def test_offsets_come_back(config: Path) -> None:
    held = ConsumerOffsets.read(config)
    table = OffsetTable(DeliveryConfig(), held.offsets, held.version)
    assert ConsumerOffsets(table.offsets, table.version) == held
    (topic, group), queues = next(iter(held.offsets.items()))
    assert {queue_id: table.committed(group, topic, queue_id) for queue_id in queues} == queues


def test_delay_offsets_come_back(config: Path) -> None:
    held = DelayOffsets.read(config)
    schedule = DelaySchedule(held.offsets, held.version)
    assert schedule.offsets == {level: offset for level, offset in held.offsets.items() if offset}
    assert schedule.version == held.version


def test_groups_come_back(config: Path) -> None:
    held = SubscriptionGroups.read(config)
    parsed = {name: SubscriptionGroup.parse(name, one) for name, one in held.groups.items()}
    table = BrokerGroups(DeliveryConfig(), parsed, held.forbidden, held.version)
    assert {name: table.groups[name].document() for name in held.groups} == held.groups
    assert (table.forbidden, table.version) == (held.forbidden, held.version)


def test_topics_come_back_and_the_systems_own_are_known(config: Path) -> None:
    held = TopicTable.read(config)
    prefix = "rmq_sys_SYNC_BROKER_MEMBER_"
    broker_name = next((name.removeprefix(prefix) for name in held.topics if prefix in name), "broker-a")
    settings = DeliveryConfig(auto_create_topics=True)
    topics = BrokerTopics(settings, "interop", broker_name, held.topics, held.version).topics
    assert {name: topics[name] for name in held.topics} == held.topics
    fresh = BrokerTopics(settings, "interop", broker_name).topics
    assert {name: fresh[name] for name in fresh.keys() & held.topics.keys()} == {
        name: held.topics[name] for name in fresh.keys() & held.topics.keys()
    }


def test_recall_handles_are_those_of_java() -> None:
    handles = [text for frame in recorded_frames() if (text := handle_of(frame.described)) is not None]
    assert handles
    for text in handles:
        found = RecallHandle.decode(text)
        assert found is not None
        assert found.encode() == text
        assert found.deliver_ms % 1000 == 0


def handle_of(described: dict[str, object]) -> str | None:
    fields = described.get("extFields")
    return fields.get("recallHandle") if isinstance(fields, dict) else None
