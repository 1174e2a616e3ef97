"""Runtime info, statistics and retention: 27, 28, 306, 315, 316, 329.

Differs: 27, 306, 316 and 329 all apply retention: queue files are deleted together with the log files that
they refer to. Unused topics are kept.

Source: RocketMQ broker/.../AdminBrokerProcessor.java (prepareRuntimeInfo); store/.../StoreStatsService.java,
DefaultMessageStore.java (getRuntimeInfo).
"""

import asyncio
from collections.abc import Iterable, Mapping

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.broker_stats import SpanCount, spans_of
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.store.files.retention import DiskSpace, disk_space
from pyledger.store.queues.get_result import StoredMessage
from pyledger.wire.remoting.bodies.statistics import BrokerStats, StatsItem
from pyledger.wire.remoting.bodies.topic_config import KVTable
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import admin as headers
from pyledger.wire.remoting.versions import CURRENT_VERSION, version_name

INT_MAX = (1 << 31) - 1
RATES = {
    "putTps": "put",
    "getFoundTps": "found",
    "getMissTps": "missed",
    "getTotalTps": "pulls",
    "getTransferredTps": "given",
    # Spelling of tools before 5.0, which fail without it.
    "getTransferedTps": "given",
}
QUEUES = ("send", "pull", "litePull", "query", "ack", "heartbeat", "admin")
"""Upstream's thread pools. Here no request waits in a queue of a pool."""


class RuntimeProcessor:
    """Reports the state of the broker, and deletes expired files."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime,
            RequestCode.VIEW_BROKER_STATS_DATA: self.get_stats,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return dict.fromkeys(
            (
                RequestCode.TRIGGER_DELETE_FILES,
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                RequestCode.CLEAN_UNUSED_TOPIC,
                RequestCode.DELETE_EXPIRED_COMMITLOG,
            ),
            self.clean,
        )

    def clean(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer TRIGGER_DELETE_FILES and its variants (27, 306, 316, 329)."""
        return asyncio.ensure_future(self._clean(request))

    async def _clean(self, request: RemotingCommand) -> RemotingCommand:
        await asyncio.to_thread(self._context.store.delete_expired)
        return request.response()

    def get_stats(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer VIEW_BROKER_STATS_DATA (315)."""
        header = request.header(headers.ViewBrokerStatsDataRequestHeader)
        spans = spans_of(self._context.counts, header.stats_name, header.stats_key)
        if spans is None:
            problem = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, problem)
        minute, hour, day = map(item_of, spans)
        body = BrokerStats(stats_minute=minute, stats_hour=hour, stats_day=day)
        return request.response(body=body.encode())

    def get_runtime(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_BROKER_RUNTIME_INFO (28)."""
        return asyncio.ensure_future(self._get_runtime(request))

    async def _get_runtime(self, request: RemotingCommand) -> RemotingCommand:
        table = runtime_table(self._context, await asyncio.to_thread(disk_space, self._context.store.path))
        return request.response(body=KVTable(table=table).encode())


def runtime_table(context: BrokerContext, disk: DiskSpace) -> dict[str, str]:
    """Return the state of the broker by upstream's names; `disk` is the store's file system."""
    counts, store = context.counts, context.store
    facts = store.statistics()
    now_ms = context.clock.now_ms()
    first = store.messages(store.min_offset) if store.max_offset > store.min_offset else None
    table: dict[str, object] = {
        "bootTimestamp": context.started_ms,
        "runtime": duration_text(now_ms - context.started_ms),
        "brokerVersion": CURRENT_VERSION,
        "brokerVersionDesc": version_name(CURRENT_VERSION),
        "brokerActive": True,
        "startAcceptSendRequestTimeStamp": context.broker_state.accept_sends_from_ms,
        "putMessageTimesTotal": counts.messages_put,
        "putMessageSizeTotal": counts.bytes_put,
        "putMessageFailedTimes": counts.puts_failed,
        "putMessageAverageSize": counts.bytes_put / counts.messages_put if counts.messages_put else 0.0,
        "msgPutTotalYesterdayMorning": counts.yesterday_morning[0],
        "msgPutTotalTodayMorning": counts.today_morning[0],
        "msgPutTotalTodayNow": counts.messages_put,
        "msgGetTotalYesterdayMorning": counts.yesterday_morning[1],
        "msgGetTotalTodayMorning": counts.today_morning[1],
        "msgGetTotalTodayNow": counts.messages_given,
        "commitLogMinOffset": facts.min_offset,
        "commitLogMaxOffset": facts.max_offset,
        "dispatchBehindBytes": facts.dispatch_lag_bytes,
        "remainHowManyDataToFlush": size_text(max(0, facts.max_offset - facts.flushed_where)),
        "remainTransientStoreBufferNumbs": INT_MAX,
        "pageCacheLockTimeMills": 0,
        "earliestMessageTimeStamp": earliest_ms(first),
        "commitLogDirCapacity": (
            f"Total : {size_text(disk.total_bytes)}, Free : {size_text(disk.free_bytes)}."
        ),
        "timerReadBehind": 0,
        "timerOffsetBehind": 0,
        "timerCongestNum": 0,
        "timerEnqueueTps": 0.0,
        "timerDequeueTps": 0.0,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": 0,
    }
    # Whole percents, as retention counts them.
    ratio = disk.used_percent / 100 if disk.used_percent >= 0 else -1.0
    table |= dict.fromkeys(("commitLogDiskRatio", "consumeQueueDiskRatio"), ratio)
    for queue in QUEUES:
        for detail in ("Size", "Capacity", "HeadWaitTimeMills"):
            table[f"{queue}ThreadPoolQueue{detail}"] = 0
    table["sendThreadPoolQueueSize"] = context.puts.waiting
    table["sendThreadPoolQueueCapacity"] = context.config.waiting_sends_max
    for level, offset in context.tables.delays.offsets.items():
        end = store.queue_range(names.SCHEDULE_TOPIC, level - 1).max_offset
        table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    for name, field in RATES.items():
        table[name] = " ".join(str(rate) for rate in counts.rates(field))
    return {name: java_text(value) for name, value in table.items()}


def item_of(span: SpanCount) -> StatsItem:
    """Return a statistic in the form of the protocol."""
    return StatsItem(sum=span.total, tps=span.per_second, avgpt=span.per_call)


def earliest_ms(messages: Iterable[StoredMessage] | None) -> int:
    """Return when the first message of the log was stored, ms since 1970; -1 for an empty log."""
    first = next(iter(messages), None) if messages is not None else None
    return -1 if first is None else first.store_timestamp


def java_text(value: object) -> str:
    """Return a value as Java writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def duration_text(duration_ms: int) -> str:
    """Format a duration (ms) for people."""
    seconds = duration_ms // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def size_text(size_bytes: float) -> str:
    """Format a size (bytes) for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.4g} TiB"
