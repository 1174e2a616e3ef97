"""Topics and groups as a broker sends them to slaves, name servers and tools.

Source: RocketMQ remoting/.../protocol/body/TopicConfigSerializeWrapper.java, TopicList.java, GroupList.java,
SubscriptionGroupWrapper.java, KVTable.java.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import NO_VERSION, DataVersion, TopicConfig
from pyledger.wire.remoting.bodies.json_body import Body, encode_body
from pyledger.wire.remoting.headers.codec import Int


@lazy_dataclass(kw_only=True)
class TopicConfigTable(Body):
    """To 21, and the body of 103 before 3.0.11; upstream's `TopicConfigAndMappingSerializeWrapper`."""

    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = NO_VERSION
    topic_queue_mapping_info_map: Mapping[str, Any] = field(default_factory=dict)
    """Static topics: what a name server keeps, see `pyledger.wire.remoting.bodies.route`."""
    topic_queue_mapping_detail_map: Mapping[str, Any] = field(default_factory=dict)
    mapping_data_version: DataVersion | None = None
    """Missing before 5.0."""


@lazy_dataclass(kw_only=True)
class TopicConfigList(Body):
    """18: topics to create or change."""

    topic_config_list: tuple[TopicConfig, ...] = ()


@lazy_dataclass(kw_only=True)
class TopicList(Body):
    """Names of topics."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


def encode_topic_names(names: list[str]) -> bytes:
    """A part of a list of topics, for `topic_list_of`."""
    return encode_body(names)[1:-1]


def topic_list_of(encoded: Iterable[bytes]) -> bytes:
    """Write a `TopicList` without an address, of encoded parts."""
    return b'{"topicList":[' + b",".join(encoded) + b"]}"


@lazy_dataclass(kw_only=True)
class GroupList(Body):
    """Names of groups."""

    group_list: tuple[str, ...] = ()


@lazy_dataclass(kw_only=True)
class SubscriptionGroupTable(Body):
    """To 201; upstream's `SubscriptionGroupWrapper`."""

    subscription_group_table: Mapping[str, SubscriptionGroup] = field(default_factory=dict)
    forbidden_table: Mapping[str, Mapping[str, Int]] = field(default_factory=dict)
    """Bits by group and topic."""
    data_version: DataVersion = NO_VERSION


@lazy_dataclass(kw_only=True)
class SubscriptionGroupList(Body):
    """225: groups to create or change."""

    group_config_list: tuple[SubscriptionGroup, ...] = ()


@lazy_dataclass(kw_only=True)
class KVTable(Body):
    """Pairs of text: settings, statistics, order topics."""

    table: Mapping[str, str] = field(default_factory=dict)
