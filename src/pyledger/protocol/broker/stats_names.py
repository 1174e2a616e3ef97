"""Statistics by the names that tools know: which counter each is, and how its key is written.

Source: RocketMQ common/.../Stats.java; store/.../BrokerStatsManager.java.
"""

from pyledger.protocol.broker.broker_stats import BrokerCounts, Counter, CounterTable, SpanCount

BY_TOPIC = frozenset({"TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"})
BYTES = frozenset({"TOPIC_PUT_SIZE", "GROUP_GET_SIZE"})
KEY_SEPARATOR = "@"


def counter_of(counts: BrokerCounts, name: str, key: str) -> Counter | None:
    """The counter of a statistic; None where nothing was counted, or the name is unknown."""
    tables: dict[str, CounterTable] = {
        "TOPIC_PUT_NUMS": counts.put,
        "TOPIC_PUT_SIZE": counts.put,
        "GROUP_GET_NUMS": counts.given,
        "GROUP_GET_SIZE": counts.given,
        "SNDBCK_PUT_NUMS": counts.sent_back,
    }
    table = tables.get(name)
    if table is None:
        return None
    return table.counters.get(key if name in BY_TOPIC else split_key(key))


def split_key(key: str) -> tuple[str, str]:
    """Topic and group of `topic@group`."""
    topic, _, group = key.partition(KEY_SEPARATOR)
    return topic, group


def spans_of(counts: BrokerCounts, name: str, key: str) -> tuple[SpanCount, SpanCount, SpanCount] | None:
    """A statistic over the last minute, hour and day; None where there is none."""
    counter = counter_of(counts, name, key)
    return None if counter is None else counter.spans("size_bytes" if name in BYTES else "messages")
