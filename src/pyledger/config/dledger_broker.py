"""Settings of a broker whose commit log is the log of a DLedger group, by upstream's historical spelling.

Source: RocketMQ store/.../MessageStoreConfig.java.
"""

import re
from dataclasses import dataclass

from pyledger.config.fields import check, setting
from pyledger.errors import ConfigError

SELF_ID = re.compile(r"[a-zA-Z]\d{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerBrokerConfig:
    """Which group a broker is a member of. The leader is the master, the others are its slaves."""

    enabled: bool = setting(False, upstream="enableDLegerCommitLog")
    """Keep the commit log in a DLedger group of brokers of one name."""

    group: str = setting("", upstream="dLegerGroup")
    """Name of the group."""

    peers: str = setting("", upstream="dLegerPeers")
    """All members, `n0-host:port;n1-host:port`, the same text at each of them."""

    self_id: str = setting("", upstream="dLegerSelfId")
    """The own id among them: a letter and a number. As a slave the broker has the id after that number."""

    data_path: str = setting("", upstream="storePathDLedgerCommitLog")
    """Has to be empty: the log is in `dledger-<id>/data` in the store's folder, which may be a link."""

    def __post_init__(self) -> None:
        check(self)
        if not self.enabled:
            return
        if self.data_path:
            # Readers of the folder would not find the log, nor a broker whose setting was forgotten.
            raise ConfigError(
                "data_path",
                "storePathDLedgerCommitLog puts the log where no reader of the store would look for it",
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
        """The broker's id while another member leads; 0 is the leader's."""
        return int(self.self_id[1:]) + 1
