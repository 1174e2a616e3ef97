"""Settings of a member of a DLedger group: its times, limits and what it does for safety.

Times are shorter than DLedger's, for groups of our own; `UPSTREAM_TIMES` is for those with Java nodes.
Source: DLedger DLedgerConfig.java, and constants of DLedgerLeaderElector.java and DLedgerEntryPusher.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import check, setting

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerConfig:
    """How a member of a DLedger group votes, replicates and acknowledges."""

    heart_beat_time_interval_ms: int = setting(
        250, unit="ms", range=(10, HOUR_MS), upstream="heartBeatTimeIntervalMs"
    )
    """Pause between two rounds of heartbeats. Upstream: 2000; with Java nodes it must be that."""

    max_heart_beat_leak: int = setting(2, unit="intervals", range=(1, 1000), upstream="maxHeartBeatLeak")
    """Silence of a leader, or of its quorum, after which it is given up. Upstream: 3."""

    heart_beat_jitter_ms: int = setting(75, unit="ms", range=(0, HOUR_MS), upstream=None)
    """Chance added to that silence, so that not all followers stand at one moment. Upstream: none."""

    min_vote_interval_ms: int = setting(30, unit="ms", range=(1, HOUR_MS), upstream="minVoteIntervalMs")
    """Shortest pause before the next vote. Upstream: 300."""

    max_vote_interval_ms: int = setting(150, unit="ms", range=(2, HOUR_MS), upstream="maxVoteIntervalMs")
    """Longest pause before the next vote. Upstream: 1000."""

    vote_wait_ms: int = setting(300, unit="ms", range=(10, HOUR_MS), upstream=None)
    """How long a candidate waits for answers, besides up to `max_vote_interval_ms` more. Upstream: 2000."""

    min_take_leadership_vote_interval_ms: int = setting(
        30, unit="ms", range=(1, HOUR_MS), upstream="minTakeLeadershipVoteIntervalMs"
    )
    """Shortest pause before a vote of a member that was chosen to lead."""

    max_take_leadership_vote_interval_ms: int = setting(
        100, unit="ms", range=(2, HOUR_MS), upstream="maxTakeLeadershipVoteIntervalMs"
    )
    """Longest pause before a vote of a member that was chosen to lead."""

    preferred_leader_ids: str = setting("", upstream="preferredLeaderId")
    """Members that should lead, `;` between them; empty is none."""

    check_preferred_leader_interval_ms: int = setting(1000, unit="ms", range=(10, HOUR_MS), upstream=None)
    """How often a leader that is not preferred looks for one that is."""

    max_leadership_transfer_wait_index: int = setting(
        1000, unit="entries", range=(0, INT_MAX), upstream="maxLeadershipTransferWaitIndex"
    )
    """A member this far behind is not given the leadership."""

    leadership_transfer_wait_timeout_ms: int = setting(
        1000, unit="ms", range=(10, HOUR_MS), upstream="leadershipTransferWaitTimeout"
    )
    """How long the new leader waits for the entries it lacks."""

    rpc_timeout_ms: int = setting(3000, unit="ms", range=(10, HOUR_MS), upstream=None)
    """How long an answer of another member is waited for."""

    max_push_time_out_ms: int = setting(1000, unit="ms", range=(10, HOUR_MS), upstream="maxPushTimeOutMs")
    """A push without answer is sent again after this time; a follower answers a push that does not fit."""

    commit_push_interval_ms: int = setting(1000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """A follower that needs no entries is told the committed index this often."""

    dispatcher_pause_ms: int = setting(500, unit="ms", range=(1, HOUR_MS), upstream=None)
    """Pause of a dispatcher after an answer that it cannot use."""

    max_pending_pushes: int = setting(1000, unit="pushes", range=(1, 1 << 20), upstream=None)
    """Pushes without answer to one follower, and pushes that a follower keeps until they fit."""

    max_pending_push_bytes: int = setting(16 << 20, unit="bytes", range=(1, 1 << 40), upstream=None)
    """Entries in pushes without answer to one follower, beyond which no further one is sent."""

    batch_push_enabled: bool = setting(True, upstream="enableBatchPush")
    """Push many entries in one request. Upstream: off, though all since 0.2.0 understand it."""

    max_batch_push_bytes: int = setting(
        262_144, unit="bytes", range=(1, 11 << 20), upstream="maxBatchPushSize"
    )
    """Size of stored entries that ends a batch. Upstream: 4096."""

    max_batch_push_entries: int = setting(1024, unit="entries", range=(1, 1 << 20), upstream=None)
    """Entries in one batch."""

    peer_push_throttle_point_bytes: int = setting(
        314_572_800, unit="bytes", range=(1, 1 << 50), upstream="peerPushThrottlePoint"
    )
    """A follower that is further behind is filled no faster than the quota."""

    peer_push_quota_bytes: int = setting(
        20_971_520, unit="bytes a second", range=(1, 1 << 40), upstream="peerPushQuota"
    )
    """What such a follower gets in a second."""

    max_pending_requests_num: int = setting(
        10_000, unit="requests", range=(1, INT_MAX), upstream="maxPendingRequestsNum"
    )
    """Appends that wait for their quorum; one more is refused."""

    max_wait_ack_time_ms: int = setting(2500, unit="ms", range=(10, HOUR_MS), upstream="maxWaitAckTimeMs")
    """An append that waited longer is answered 502: its outcome is unknown."""

    flush_before_ack: bool = setting(True, upstream=None)
    """Entries are durable before they are acknowledged or counted. Upstream: a copy in memory is enough."""

    first_vote_at_next_term: bool = setting(True, upstream=None)
    """After a start, vote in a new term only. Upstream votes in the old one, which can make two entries
    of one index and term."""

    commit_current_term_only: bool = setting(True, upstream=None)
    """Commit entries of older terms only below one of the own term, or when every member has them. Upstream
    counts a majority, which can undo what was committed."""

    check_pushes: bool = setting(True, upstream=None)
    """Compare, truncate and commit only for the leader of the own term, never below the committed index, and
    commit only what was compared with this leader. Upstream looks at little of that."""

    refuse_votes_with_lost_tail: bool = setting(True, upstream=None)
    """A member whose log may lack durable entries neither votes nor stands until a leader filled it up."""

    append_on_election: bool = setting(True, upstream=None)
    """A new leader appends an entry with an empty body, so that older entries are committed at once. Off
    where the log is a broker's: its readers take no empty entry."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
