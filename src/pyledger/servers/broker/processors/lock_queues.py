"""Locks of queues, for groups that consume in order: 41 and 42.

Source: RocketMQ broker/.../AdminBrokerProcessor.java (lockBatchMQ, unlockBatchMQ).
"""

from collections.abc import Mapping

from pyledger.model.remoting_codes import RequestCode
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.wire.remoting.bodies.membership import LockBatchRequest, LockBatchResponse
from pyledger.wire.remoting.command import RemotingCommand


class LockProcessor:
    """Locks queues for one client of a group at a time."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer LOCK_BATCH_MQ (41)."""
        body = request.body_as(LockBatchRequest)
        taken = self._context.tables.locks.lock(
            body.consumer_group or "", body.mq_set, body.client_id or "", self._context.now_ms()
        )
        return request.response(body=LockBatchResponse(lock_ok_mq_set=tuple(taken)).encode())

    def unlock(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UNLOCK_BATCH_MQ (42)."""
        body = request.body_as(LockBatchRequest)
        self._context.tables.locks.unlock(body.consumer_group or "", body.mq_set, body.client_id or "")
        return request.response()
