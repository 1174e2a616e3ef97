"""Headers of administration on a broker.

Source: RocketMQ remoting/.../protocol/header/CreateTopicRequestHeader.java,
GetAllTopicConfigRequestHeader.java, GetConsumeStatsRequestHeader.java, QueryConsumeQueueRequestHeader.java.
"""

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


@lazy_dataclass(kw_only=True)
class CreateTopicRequestHeader(RpcHeader):
    """17: create or change a topic."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


@lazy_dataclass(kw_only=True)
class DeleteTopicRequestHeader(RpcHeader):
    """215: delete a topic."""

    topic: str


@lazy_dataclass(kw_only=True)
class GetAllTopicConfigRequestHeader(RpcHeader):
    """21: all topics, or a page of them."""

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


@lazy_dataclass(kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    """To 21."""

    total_topic_num: Int | None = None


@lazy_dataclass(kw_only=True)
class GetTopicConfigRequestHeader(RpcHeader):
    """351: one topic."""

    topic: str


@lazy_dataclass(kw_only=True)
class GetAllSubscriptionGroupRequestHeader(RpcHeader):
    """201: all groups, or a page of them."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


@lazy_dataclass(kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    """To 201."""

    total_group_num: Int | None = None


@lazy_dataclass(kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    """207: delete a group."""

    group_name: str
    clean_offset: bool = False


@lazy_dataclass(kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    """352: one group."""

    group: str


@lazy_dataclass(kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    """To 26."""

    version: str


@lazy_dataclass(kw_only=True)
class GetTopicStatsInfoRequestHeader(RpcHeader):
    """202: offsets of the queues of a topic."""

    topic: str


@lazy_dataclass(kw_only=True)
class GetConsumeStatsRequestHeader(RpcHeader):
    """208: how far is a group?"""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@lazy_dataclass(kw_only=True)
class GetConsumeStatsInBrokerHeader(RpcHeader):
    """317: how far are all groups?"""

    is_order: bool = False
    """Only ordered topics."""


@lazy_dataclass(kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcHeader):
    """203: connections of a consumer group."""

    consumer_group: str


@lazy_dataclass(kw_only=True)
class GetProducerConnectionListRequestHeader(RpcHeader):
    """204: connections of a producer group."""

    producer_group: str


@lazy_dataclass(kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(RpcHeader):
    """300: groups that consume a topic."""

    topic: str


@lazy_dataclass(kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcHeader):
    """343: topics that a group consumes."""

    group: str


@lazy_dataclass(kw_only=True)
class CloneGroupOffsetRequestHeader(RpcHeader):
    """314: copy the offsets of a group to another one."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@lazy_dataclass(kw_only=True)
class QueryConsumeQueueRequestHeader(RpcHeader):
    """321: units of a consume queue."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    """Queue offset of the first unit."""
    count: Int = 0
    consumer_group: str | None = None


@lazy_dataclass(kw_only=True)
class ViewBrokerStatsDataRequestHeader(RpcHeader):
    """315: a statistic of a broker."""

    stats_name: str
    stats_key: str


@lazy_dataclass(kw_only=True)
class ExchangeHAInfoRequestHeader(Header):
    """906: who replicates from whom."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@lazy_dataclass(kw_only=True)
class ExchangeHAInfoResponseHeader(Header):
    """To 906."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
