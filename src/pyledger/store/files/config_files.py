"""The files in a store's folder `config`: topics, groups, and offsets of consumers and deliveries.

Each class is one file: `read` returns its content or that of its `.bak`, `write` replaces it durably.

Source: RocketMQ broker/.../TopicConfigManager.java, ConsumerOffsetManager.java, ScheduleMessageService.java,
SubscriptionGroupManager.java, ConsumerOrderInfoManager.java.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pyledger.errors import StoreFormatError
from pyledger.model.ids import QueueId, QueueOffset
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import NO_VERSION, DataVersion, TopicConfig
from pyledger.protocol.broker.message_request_modes import GroupMode, RequestMode
from pyledger.protocol.broker.pop_order import OrderedBatch
from pyledger.store.files.meta_file import read_json, write_json

TOPICS_FILE = "topics.json"
CONSUMER_OFFSETS_FILE = "consumerOffset.json"
DELAY_OFFSETS_FILE = "delayOffset.json"
SUBSCRIPTION_GROUPS_FILE = "subscriptionGroup.json"
REQUEST_MODES_FILE = "messageRequestMode.json"
ORDERED_POPS_FILE = "consumerOrderInfo.json"
TOPIC_GROUP_SEPARATOR = "@"


@dataclass(frozen=True, slots=True)
class TopicTable:
    """`topics.json`."""

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    version: DataVersion = NO_VERSION

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`; empty when there is no such file."""
        with opened_table(folder / TOPICS_FILE, "topicConfigTable") as (table, found):
            topics = {name: TopicConfig.parse(name, one) for name, one in table.items()}
            return cls(topics, DataVersion.parse(found.get("dataVersion")))

    def write(self, folder: Path) -> None:
        """Into the folder `config`."""
        table = {name: one.document() for name, one in self.topics.items()}
        write_json(folder / TOPICS_FILE, {"dataVersion": self.version.document(), "topicConfigTable": table})


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """`consumerOffset.json`: the next queue offset to consume, by topic, group and queue."""

    offsets: Mapping[tuple[str, str], Mapping[QueueId, QueueOffset]] = field(default_factory=dict)
    """By topic and group."""
    version: DataVersion = NO_VERSION

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`; empty when there is no such file. Keys without a group are left out."""
        offsets = {}
        with opened_table(folder / CONSUMER_OFFSETS_FILE, "offsetTable") as (table, found):
            for key, queues in table.items():
                topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if separator:
                    offsets[topic, group] = {QueueId(int(k)): QueueOffset(int(v)) for k, v in queues.items()}
            return cls(offsets, DataVersion.parse(found.get("dataVersion")))

    def write(self, folder: Path) -> None:
        """Into the folder `config`."""
        table = {TOPIC_GROUP_SEPARATOR.join(key): dict(queues) for key, queues in self.offsets.items()}
        topics: dict[str, list[str]] = {}
        for topic, group in sorted(self.offsets):
            topics.setdefault(group, []).append(topic)
        # `groupTopicMap` is for upstream's tools only; `read` needs just the table.
        document = {"dataVersion": self.version.document(), "groupTopicMap": topics, "offsetTable": table}
        write_json(folder / CONSUMER_OFFSETS_FILE, document)


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """`delayOffset.json`: the next queue offset to deliver, by delay level (1 to 18, not the queue id)."""

    offsets: Mapping[int, QueueOffset] = field(default_factory=dict)
    version: DataVersion = NO_VERSION

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`; empty when there is no such file."""
        with opened_table(folder / DELAY_OFFSETS_FILE, "offsetTable") as (table, found):
            offsets = {int(level): QueueOffset(int(value)) for level, value in table.items()}
            return cls(offsets, DataVersion.parse(found.get("dataVersion")))

    def write(self, folder: Path) -> None:
        """Into the folder `config`."""
        document = {"dataVersion": self.version.document(), "offsetTable": dict(self.offsets)}
        write_json(folder / DELAY_OFFSETS_FILE, document)


@dataclass(frozen=True, slots=True)
class RequestModeTable:
    """`messageRequestMode.json`: which groups pop."""

    modes: Mapping[tuple[str, str], GroupMode] = field(default_factory=dict)
    """By topic and group."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`; empty when there is no such file."""
        with opened_table(folder / REQUEST_MODES_FILE, "messageRequestModeMap") as (table, _):
            return cls(
                {
                    (topic, group): GroupMode(
                        RequestMode(one.get("mode", "PULL")), int(one.get("popShareQueueNum", 0))
                    )
                    for topic, groups in table.items()
                    for group, one in groups.items()
                }
            )

    def write(self, folder: Path) -> None:
        """Into the folder `config`."""
        table: dict[str, dict[str, Any]] = {}
        for (topic, group), mode in self.modes.items():
            table.setdefault(topic, {})[group] = {
                "consumerGroup": group,
                "mode": mode.mode.value,
                "popShareQueueNum": mode.share_count,
                "topic": topic,
            }
        write_json(folder / REQUEST_MODES_FILE, {"messageRequestModeMap": table})


@dataclass(frozen=True, slots=True)
class OrderedPopTable:
    """`consumerOrderInfo.json`: what groups that pop in order have taken last."""

    batches: Mapping[tuple[str, str], Mapping[int, OrderedBatch]] = field(default_factory=dict)
    """By topic and group, then by queue id."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`; empty when there is no such file. Empty batches are left out."""
        with opened_table(folder / ORDERED_POPS_FILE, "table") as (table, _):
            batches = {}
            for key, queues in table.items():
                topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if separator:
                    batches[topic, group] = {
                        int(queue_id): parse_batch(one) for queue_id, one in queues.items() if one.get("o")
                    }
            return cls(batches)

    def write(self, folder: Path) -> None:
        """Into the folder `config`."""
        table = {
            TOPIC_GROUP_SEPARATOR.join(key): {number: batch_document(one) for number, one in queues.items()}
            for key, queues in self.batches.items()
        }
        write_json(folder / ORDERED_POPS_FILE, {"table": table})


def parse_batch(document: Mapping[str, Any]) -> OrderedBatch:
    """Parse upstream's form: offsets are relative to the first; a bit mask marks those that are done."""
    first, *rest = map(int, document["o"])
    offsets = (first, *(first + one for one in rest))
    done = int(document.get("cm", 0))
    visible, times = document.get("ot") or {}, document.get("oc") or {}
    return OrderedBatch(
        attempt=document.get("a"),
        pop_ms=int(document.get("popTime", 0)),
        invisible_ms=int(document.get("i") or 0),
        offsets=offsets,
        touched_ms=int(document.get("l", 0)),
        done={offset for at, offset in enumerate(offsets) if done >> at & 1},
        visible_ms={int(offset): int(time_ms) for offset, time_ms in visible.items()},
        times={int(offset): int(count) for offset, count in times.items()},
    )


def batch_document(batch: OrderedBatch) -> dict[str, Any]:
    """A batch in upstream's form."""
    first = batch.offsets[0]
    document = {
        "a": batch.attempt,
        "cm": sum(1 << at for at, offset in enumerate(batch.offsets) if offset in batch.done),
        "i": batch.invisible_ms,
        "l": batch.touched_ms,
        "o": [first, *(offset - first for offset in batch.offsets[1:])],
        "oc": dict(batch.times),
        "ot": dict(batch.visible_ms),
        "popTime": batch.pop_ms,
    }
    optional = ("a", "oc", "ot")
    return {name: value for name, value in document.items() if value or name not in optional}


GROUP_DEFAULTS: Mapping[str, Any] = SubscriptionGroup("").document()
"""A new group of a 5.3 broker, by upstream's names."""


@dataclass(frozen=True, slots=True)
class SubscriptionGroups:
    """`subscriptionGroup.json`."""

    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Every field of each group, by upstream's names; what a file leaves out has its default."""
    forbidden: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Bits by group and topic."""
    version: DataVersion = NO_VERSION

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`; empty when there is no such file."""
        with opened_table(folder / SUBSCRIPTION_GROUPS_FILE, "subscriptionGroupTable") as (table, found):
            groups = {name: {**GROUP_DEFAULTS, "groupName": name, **one} for name, one in table.items()}
            forbidden = {group: dict(topics) for group, topics in found.get("forbiddenTable", {}).items()}
            return cls(groups, forbidden, DataVersion.parse(found.get("dataVersion")))

    def write(self, folder: Path) -> None:
        """Into the folder `config`."""
        table = {
            name: dict(sorted({**GROUP_DEFAULTS, "groupName": name, **one}.items()))
            for name, one in self.groups.items()
        }
        document = {
            "dataVersion": self.version.document(),
            "forbiddenTable": {group: dict(topics) for group, topics in self.forbidden.items()},
            "subscriptionGroupTable": table,
        }
        write_json(folder / SUBSCRIPTION_GROUPS_FILE, document)


@contextmanager
def opened_table(path: Path, name: str) -> Iterator[tuple[Mapping[Any, Any], Mapping[str, Any]]]:
    """Yield a table of a document, and the document; both are empty when there is no file.

    Raises:
        StoreFormatError: the document does not have the structure that the block expects.
    """
    found = read_json(path)
    try:
        document = {} if found is None else dict(found.items())
        yield dict(document.get(name, {}).items()), document
    except (AttributeError, TypeError, ValueError) as error:
        problem = f"does not hold what {name} should be"
        raise StoreFormatError(str(path), problem, "restore it, or remove it to start afresh") from error
