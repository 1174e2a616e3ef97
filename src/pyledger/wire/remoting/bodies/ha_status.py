"""The body of 907: a broker's view of its slaves or its master. Offsets are physical, in bytes.

Source: RocketMQ remoting/.../protocol/body/HARuntimeInfo.java.
"""

from dataclasses import dataclass, field

from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.headers.codec import Int, Long


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConnectionStatus(Body):
    """A slave, seen from its master; upstream's `HAConnectionRuntimeInfo`."""

    addr: str = ""
    slave_ack_offset: Long = 0
    diff: Long = 0
    """Lag of the slave, in bytes of the master's log."""
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HaClientStatus(Body):
    """A slave's own side; upstream's `HAClientRuntimeInfo`."""

    master_addr: str = ""
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0
    activated: bool = False
    """Whether there is a connection to the master."""
    problem: str = ""
    """Why there is none; upstream has no such field."""
    missing_bytes: Long = 0
    """Bytes of the master's log before the start of the slave's; upstream has no such field."""
    master_role: str = ""
    """The role that the master last reported, in upstream's words, or empty. Upstream has no such field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaStatus(Body):
    """To 907; upstream's `HARuntimeInfo`."""

    master: bool = False
    master_commit_log_max_offset: Long = 0
    """At a slave: the last known one; -1, which upstream never sends: not yet connected to its master."""
    in_sync_slave_nums: Int = 0
    ha_connection_info: tuple[HaConnectionStatus, ...] = ()
    ha_client_info: HaClientStatus = field(default_factory=HaClientStatus)
    broker_role: str = ""
    """The role of the broker in upstream's words, or empty. Upstream has no such field."""
