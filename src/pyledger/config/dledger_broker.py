"""Settings of a broker whose commit log is replicated by DLedger. The spelling `dLeger` is upstream's.

Source: RocketMQ store/.../MessageStoreConfig.java.
"""

import re

from pyledger.config.fields import check, setting, settings_class
from pyledger.errors import ConfigError

SELF_ID = re.compile(r"[a-zA-Z]\d{1,9}")


@settings_class
class DLedgerBrokerConfig:
    """The DLedger group of a broker. The leader is the master, the other members are its slaves."""

    enabled: bool = setting(False, upstream="enableDLegerCommitLog")
    """Replicate the commit log in a DLedger group of brokers with the same name."""

    group: str = setting("", upstream="dLegerGroup")
    """Name of the group."""

    peers: str = setting("", upstream="dLegerPeers")
    """All members, `n0-host:port;n1-host:port`; the same text at each member."""

    self_id: str = setting("", upstream="dLegerSelfId")
    """Id of this broker among the peers: a letter and a number. As a slave, the broker has the id after that
    number."""

    data_path: str = setting("", upstream="storePathDLedgerCommitLog")
    """Must be empty. The log is in `dledger-<id>/data` in the store's folder, which may be a symbolic
    link."""

    def __post_init__(self) -> None:
        check(self)
        if not self.enabled:
            return
        if self.data_path:
            # Readers of the folder would not find the log, nor would a broker started without the setting.
            raise ConfigError(
                "data_path",
                "storePathDLedgerCommitLog puts the log where no reader of the store would find it",
                f"leave it out, and make dledger-{self.self_id}/data in the store a link to that folder",
            )
        for field, value, name in (
            ("group", self.group, "dLegerGroup"),
            ("peers", self.peers, "dLegerPeers"),
        ):
            if not value:
                raise ConfigError(field, "is needed by enableDLegerCommitLog", f"set {name}")
        if not SELF_ID.fullmatch(self.self_id):
            raise ConfigError(
                "self_id", f"{self.self_id!r} is not a letter and a number", "set dLegerSelfId, such as n0"
            )

    @property
    def slave_id(self) -> int:
        """Broker id while another member leads; the leader's is 0."""
        return int(self.self_id[1:]) + 1
