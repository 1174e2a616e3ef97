"""Slaves and masters: 907.

Source: RocketMQ broker/.../AdminBrokerProcessor.java (getBrokerHaStatus).
"""

from collections.abc import Mapping

from pyledger.broker.parts import BrokerParts, Method, Reply
from pyledger.net.connection import Connection
from pyledger.wire.codes import RequestCode
from pyledger.wire.remoting import RemotingCommand


class ReplicationProcessor:
    """Shows how far slaves are."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def methods(self) -> Mapping[RequestCode, Method]:
        """What anybody may ask, by request code."""
        return {RequestCode.GET_BROKER_HA_STATUS: self.get_status}

    def changes(self) -> Mapping[RequestCode, Method]:
        """Nothing."""
        return {}

    def get_status(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """907."""
        return request.response(body=self._parts.replication.status().encode())
