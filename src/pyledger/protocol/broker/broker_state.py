"""What a broker is at the moment and what it may do."""

from dataclasses import field

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.topic import Permission


@lazy_dataclass(kw_only=True)
class BrokerState:
    """Facts about the broker that rules check; immutable, replaced at each change."""

    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    region: str = "DefaultRegion"
    slave: bool = False
    master_alive: bool = False
    """Seen from a slave: the smallest broker id of its group is 0."""
    permission: Permission = Permission.READ | Permission.WRITE
    trace: bool = True
    accept_sends_from_ms: int = 0
    """Before this time no send is taken."""
    readable: bool = field(init=False, default=True)
    writable: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "readable", bool(self.permission & Permission.READ))
        object.__setattr__(self, "writable", bool(self.permission & Permission.WRITE))
