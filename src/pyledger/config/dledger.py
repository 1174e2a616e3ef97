"""Settings of a member of a DLedger group: timeouts, limits and safety rules.

The default times are shorter than DLedger's; groups with Java nodes need `UPSTREAM_TIMES`.
Source: DLedger DLedgerConfig.java, and constants of DLedgerLeaderElector.java and DLedgerEntryPusher.java.
"""

from pyledger.config.fields import check, setting, settings_class

HOUR_MS = 3_600_000
INT_MAX = (1 << 31) - 1

UPSTREAM_TIMES = {
    "heart_beat_time_interval_ms": 2000,
    "max_heart_beat_leak": 3,
    "min_vote_interval_ms": 300,
    "max_vote_interval_ms": 1000,
    "vote_wait_ms": 2000,
    "heart_beat_jitter_ms": 1000,
}
"""What a group that has Java nodes needs: their leaders send a heartbeat every 2 s."""


@settings_class
class DLedgerConfig:
    """How a member of a DLedger group votes, replicates and acknowledges."""

    heart_beat_time_interval_ms: int = setting(
        250, unit="ms", range=(10, HOUR_MS), upstream="heartBeatTimeIntervalMs"
    )
    """Interval between two heartbeats. Upstream's default, which groups with Java nodes need: 2000."""

    max_heart_beat_leak: int = setting(2, unit="intervals", range=(1, 1000), upstream="maxHeartBeatLeak")
    """Heartbeat intervals without a heartbeat after which a follower campaigns; also those after which a
    leader that cannot reach a quorum steps down. Upstream: 3."""

    heart_beat_jitter_ms: int = setting(75, unit="ms", range=(0, HOUR_MS), upstream=None)
    """Largest random time added to that timeout, so that followers do not campaign at the same moment.
    Upstream: none."""

    min_vote_interval_ms: int = setting(30, unit="ms", range=(1, HOUR_MS), upstream="minVoteIntervalMs")
    """Shortest pause before the next election round. Upstream: 300."""

    max_vote_interval_ms: int = setting(150, unit="ms", range=(2, HOUR_MS), upstream="maxVoteIntervalMs")
    """Longest pause before the next election round. Upstream: 1000."""

    vote_wait_ms: int = setting(300, unit="ms", range=(10, HOUR_MS), upstream=None)
    """How long a candidate waits for votes, plus a random time up to `max_vote_interval_ms`. Upstream:
    2000."""

    min_take_leadership_vote_interval_ms: int = setting(
        30, unit="ms", range=(1, HOUR_MS), upstream="minTakeLeadershipVoteIntervalMs"
    )
    """Shortest pause before a member campaigns to which the leadership is transferred."""

    max_take_leadership_vote_interval_ms: int = setting(
        100, unit="ms", range=(2, HOUR_MS), upstream="maxTakeLeadershipVoteIntervalMs"
    )
    """Longest pause before a member campaigns to which the leadership is transferred."""

    preferred_leader_ids: str = setting("", upstream="preferredLeaderId")
    """Members that should lead, separated by `;`. Empty: none."""

    check_preferred_leader_interval_ms: int = setting(1000, unit="ms", range=(10, HOUR_MS), upstream=None)
    """Interval at which a leader that is not preferred tries to transfer its leadership to one that is."""

    max_leadership_transfer_wait_index: int = setting(
        1000, unit="entries", range=(0, INT_MAX), upstream="maxLeadershipTransferWaitIndex"
    )
    """Lag, in entries, above which a member cannot be given the leadership."""

    leadership_transfer_wait_timeout_ms: int = setting(
        1000, unit="ms", range=(10, HOUR_MS), upstream="leadershipTransferWaitTimeout"
    )
    """How long the new leader waits for its missing entries."""

    rpc_timeout_ms: int = setting(3000, unit="ms", range=(10, HOUR_MS), upstream=None)
    """Timeout of requests to other members."""

    max_push_time_out_ms: int = setting(1000, unit="ms", range=(10, HOUR_MS), upstream="maxPushTimeOutMs")
    """Time after which an unanswered push is sent again. A follower rejects a push with a gap before it after
    the same time."""

    commit_push_interval_ms: int = setting(1000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """Interval at which the committed index is sent to a follower that needs no entries."""

    dispatcher_pause_ms: int = setting(500, unit="ms", range=(1, HOUR_MS), upstream=None)
    """Pause of a dispatcher after a response that it cannot use."""

    max_pending_pushes: int = setting(1000, unit="pushes", range=(1, 1 << 20), upstream=None)
    """Pushes to one follower in flight, and pushes with a gap before them that a follower keeps."""

    max_pending_push_bytes: int = setting(16 << 20, unit="bytes", range=(1, 1 << 40), upstream=None)
    """Bytes of entries in flight to one follower above which no further push is sent."""

    batch_push_enabled: bool = setting(True, upstream="enableBatchPush")
    """Push several entries in one request. Upstream: off, although all versions since 0.2.0 support it."""

    max_batch_push_bytes: int = setting(
        262_144, unit="bytes", range=(1, 11 << 20), upstream="maxBatchPushSize"
    )
    """Size of stored entries at which a batch is sent. Upstream: 4096."""

    max_batch_push_entries: int = setting(1024, unit="entries", range=(1, 1 << 20), upstream=None)
    """Entries of one batch at most."""

    peer_push_throttle_point_bytes: int = setting(
        314_572_800, unit="bytes", range=(1, 1 << 50), upstream="peerPushThrottlePoint"
    )
    """Lag above which pushes to a follower are limited to the quota."""

    peer_push_quota_bytes: int = setting(
        20_971_520, unit="bytes a second", range=(1, 1 << 40), upstream="peerPushQuota"
    )
    """Bytes per second for such a follower."""

    max_pending_requests_num: int = setting(
        10_000, unit="requests", range=(1, INT_MAX), upstream="maxPendingRequestsNum"
    )
    """Appends that may wait for their quorum; further ones are rejected."""

    max_wait_ack_time_ms: int = setting(2500, unit="ms", range=(10, HOUR_MS), upstream="maxWaitAckTimeMs")
    """Time after which an append that waits for its quorum is answered 502: its outcome is unknown."""

    flush_before_ack: bool = setting(True, upstream=None)
    """Acknowledge and count entries only when they are durable. Upstream counts entries in memory."""

    first_vote_at_next_term: bool = setting(True, upstream=None)
    """After a start, vote in a new term only. Upstream votes in the old one, which can produce two entries
    with the same index and term."""

    commit_current_term_only: bool = setting(True, upstream=None)
    """Commit entries of older terms only together with a later entry of the current term, or when every
    member has them. Upstream counts a majority, which can undo committed entries."""

    check_pushes: bool = setting(True, upstream=None)
    """Accept compare, truncate and commit requests only from the leader of the current term, never truncate
    below the committed index, and commit only entries that were compared with this leader's. Upstream checks
    few of these conditions."""

    refuse_votes_with_lost_tail: bool = setting(True, upstream=None)
    """A member whose log may have lost durable entries neither votes nor campaigns until a leader has
    restored them."""

    append_on_election: bool = setting(True, upstream=None)
    """A new leader appends an entry with an empty body, so that older entries are committed at once. Must be
    off for the log of a broker, whose readers do not accept empty entries."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
