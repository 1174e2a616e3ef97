"""Progress of timer messages for slaves: 60, 61; state of the replication: 907.

Source: RocketMQ broker/.../AdminBrokerProcessor.java (getBrokerHaStatus,
getTimerCheckPoint, getTimerMetrics).
"""

from collections.abc import Mapping

from pyledger.model.remoting_codes import RequestCode
from pyledger.model.topic import DataVersion
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.store.messages.timer_files import check_of
from pyledger.wire.remoting.bodies.statistics import TimerCount, TimerMetrics
from pyledger.wire.remoting.command import RemotingCommand


class ReplicationProcessor:
    """Reports the progress of replication."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.get_status,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timers,
            RequestCode.GET_TIMER_METRICS: self.get_timer_counts,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return no methods."""
        return {}

    def get_status(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_BROKER_HA_STATUS (907)."""
        return request.response(body=self._context.replication.status().encode())

    def get_timers(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """60: the progress of the delivery of timer messages."""
        timers = self._context.tables.timers
        # Nothing is delivered until all messages from before the start are read.
        progress = timers.progress if timers.complete or timers.adopted else timers.start
        now_ms, step = self._context.clock.now_ms(), timers.precision_ms
        version = DataVersion(timers.change_count, timestamp_ms=self._context.started_ms)
        body = check_of(progress, now_ms // step * step, progress.next_offset, version)
        return request.response(body=body.encode())

    def get_timer_counts(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """61: the number of waiting timer messages by topic."""
        timers, now_ms = self._context.tables.timers, self._context.now_ms()
        counts = {
            topic: TimerCount(count=count, time_stamp=now_ms)
            for topic, count in timers.waiting_counts.items()
        }
        version = DataVersion(timers.change_count, timestamp_ms=self._context.started_ms)
        return request.response(body=TimerMetrics(timing_count=counts, data_version=version).encode())
