"""Replication to one follower: find where the two logs agree, truncate the follower's there, send the rest.

COMPARE sends one entry at a time; the first and last index of the follower's log decide what follows.
TRUNCATE makes an entry the follower's last. APPEND continues from there, with several pushes in flight.
COMMIT has no entries.
Source: DLedger DLedgerEntryPusher.java (EntryDispatcher).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError
from pyledger.protocol.dledger.ack_checker import QuorumAckChecker
from pyledger.protocol.dledger.member_state import FULL_PAUSE_MS, MemberState
from pyledger.protocol.dledger.messages import (
    NO_INDEX,
    Entry,
    EntryBatch,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    Response,
    size_of,
)
from pyledger.protocol.dledger.pending_calls import Calls
from pyledger.protocol.dledger.response_codes import ResponseCode

QUOTA_INTERVAL_MS = 1000
COMPARED = (ResponseCode.SUCCESS, ResponseCode.INCONSISTENT_STATE)
"""Responses to a comparison that describe the follower's log."""


@dataclass(slots=True)
class PendingPush:
    """A push in flight."""

    sent_ms: int
    count: int
    size_bytes: int


class EntryDispatcher:
    """What the leader knows about one follower, and what it sends next."""

    def __init__(self, state: MemberState, calls: Calls, checker: QuorumAckChecker, peer: str) -> None:
        self.state, self.calls, self.checker, self.peer = state, calls, checker, peer
        self.config = state.config
        self.batching = self.config.batch_push_enabled
        self.epoch = 0
        """Grows with every comparison; responses to pushes of an older epoch are ignored."""
        self.reset()
        state.role_changed.append(self.reset)

    def reset(self) -> None:
        """Begin or end a leadership."""
        self.epoch += 1
        self.type = PushType.COMPARE
        self.compare_index = self.truncate_index = self.write_index = NO_INDEX
        self._drop_all()
        self.comparing = False
        """A COMPARE or TRUNCATE is in flight."""
        self.incarnation = 0
        """Of the follower when it answered the last comparison."""
        self.rejected_index = NO_INDEX
        """First entry of the last push that did not fit the follower's log."""
        self.paused_until_ms = 0
        self.last_push_ms: int | None = None
        self.quota_from_ms = self.quota_used_bytes = 0

    def _drop_all(self) -> None:
        self.pending: dict[int, PendingPush] = {}
        self.pending_bytes = 0

    def _hold(self, first: int, push: PendingPush) -> None:
        self.pending[first] = push
        self.pending_bytes += push.size_bytes

    def _drop(self, first: int) -> None:
        self.pending_bytes -= self.pending.pop(first).size_bytes

    def _may_push(self) -> bool:
        config = self.config
        return (
            len(self.pending) < config.max_pending_pushes
            and self.pending_bytes < config.max_pending_push_bytes
        )

    def run(self, now_ms: int) -> None:
        """Send what can be sent."""
        if not self.state.is_leader or now_ms < self.paused_until_ms:
            return
        try:
            if self.type is PushType.APPEND:
                self._append(now_ms)
            elif not self.comparing and self.state.storage.end_index > NO_INDEX:
                self._compare(now_ms)
        except OffsetOutOfRangeError:  # the head of the log was deleted: continue with the rest
            self.change_state(PushType.COMPARE)
        except CorruptRecordError as error:
            self.state.found_damage(error)
            self.state.change_to_candidate(self.state.term)

    def change_state(self, to: PushType, index: int = NO_INDEX) -> None:
        """Continue with another type of push; `index` is the last entry to keep, or the last equal one."""
        self.type = to
        self.epoch += 1
        self.comparing = False
        if to is PushType.APPEND:
            self.checker.raise_water_mark(self.peer, index)
            self.write_index = index + 1
            self.compare_index = self.truncate_index = NO_INDEX
            self._drop_all()
        elif to is PushType.TRUNCATE:
            self.truncate_index, self.compare_index = index, NO_INDEX
        else:
            self.compare_index = self.truncate_index = self.write_index = NO_INDEX
            self._drop_all()
            self.checker.forget(self.peer)

    def _request(self, kind: PushType, entries: Sequence[Entry]) -> PushEntryRequest:
        state = self.state
        many = len(entries) > 1 or isinstance(entries, EntryBatch)
        return PushEntryRequest(
            group=state.group,
            remote_id=self.peer,
            local_id=state.self_id,
            leader_id=state.self_id,
            term=state.term,
            type=kind,
            entry=entries[0] if entries and not many else None,
            batch_entry=entries if many else (),
            commit_index=state.storage.committed_index,
            incarnation=self.incarnation,
        )

    def _compare(self, now_ms: int) -> None:
        storage = self.state.storage
        if self.type is PushType.COMPARE:
            if not storage.begin_index <= self.compare_index <= storage.end_index:
                self.compare_index = storage.end_index
            index = self.compare_index
        else:
            index = self.truncate_index
        request = self._request(self.type, (storage.entry(index),))
        self.comparing = True
        answer = partial(self._answered, self.epoch, self.type, index)
        self.calls.send(self.peer, request, answer, now_ms)

    def _answered(
        self, epoch: int, kind: PushType, index: int, response: Response | None, now_ms: int
    ) -> None:
        if epoch != self.epoch or not self.state.is_leader:
            return
        self.comparing = False
        code = response.code if isinstance(response, PushEntryResponse) else None
        if kind is PushType.TRUNCATE and code == ResponseCode.SUCCESS:
            self.change_state(PushType.APPEND, index)
        elif kind is PushType.COMPARE and code in COMPARED:
            assert isinstance(response, PushEntryResponse)
            self.incarnation = response.incarnation or 0
            self._compared(response)
        else:
            if kind is PushType.TRUNCATE:  # the follower may have lost entries since the comparison
                self.change_state(PushType.COMPARE)
            self.paused_until_ms = now_ms + self.config.dispatcher_pause_ms

    def _compared(self, response: PushEntryResponse) -> None:
        storage, index = self.state.storage, self.compare_index
        begin, end = storage.begin_index, storage.end_index
        truncate_index = NO_INDEX
        if response.code == ResponseCode.SUCCESS:
            if index == response.end_index:
                self.change_state(PushType.APPEND, index)
                return
            truncate_index = index
        elif (
            response.end_index < begin or response.begin_index > end or index < response.begin_index
        ):  # the two logs have no index in common, or no index is left to compare
            truncate_index = begin
        elif index > response.end_index:
            self.compare_index = response.end_index
        else:
            self.compare_index = index - 1
        if truncate_index == NO_INDEX and self.compare_index < begin:
            truncate_index = begin
        if truncate_index != NO_INDEX:
            self.change_state(PushType.TRUNCATE, truncate_index)

    def _append(self, now_ms: int) -> None:
        end_index = self.state.storage.end_index
        self._retry(now_ms)
        while self.write_index <= end_index and self._may_push():
            first, sent = self.write_index, self._push(self.write_index, now_ms)
            if not sent:
                return
            self.write_index = first + sent
        idle_ms = self.config.commit_push_interval_ms
        if self.write_index > end_index and (
            self.last_push_ms is None or now_ms >= self.last_push_ms + idle_ms
        ):
            self._commit(now_ms)

    def _push(self, first: int, now_ms: int, count_max: int | None = None) -> int:
        """Send entries from `first` on; returns how many, 0 where the quota does not allow more."""
        config = self.config
        if count_max is None:
            count_max = config.max_batch_push_entries if self.batching else 1
        entries = self.state.storage.entries(first, count_max, config.max_batch_push_bytes)
        if not self._within_quota(entries, now_ms):
            return 0
        self._hold(first, PendingPush(now_ms, len(entries), size_of(entries)))
        self.last_push_ms = now_ms
        answer = partial(self._acknowledged, self.epoch, first, len(entries))
        self.calls.send(self.peer, self._request(PushType.APPEND, entries), answer, now_ms)
        return len(entries)

    def _within_quota(self, entries: Sequence[Entry], now_ms: int) -> bool:
        config, storage = self.config, self.state.storage
        if storage.end_position - entries[0].pos < config.peer_push_throttle_point_bytes:
            return True
        if now_ms - self.quota_from_ms >= QUOTA_INTERVAL_MS:
            self.quota_from_ms, self.quota_used_bytes = now_ms, 0
        if self.quota_used_bytes >= config.peer_push_quota_bytes:
            self.paused_until_ms = self.quota_from_ms + QUOTA_INTERVAL_MS
            return False
        self.quota_used_bytes += size_of(entries)
        return True

    def _commit(self, now_ms: int) -> None:
        self.last_push_ms = now_ms
        self.calls.send(self.peer, self._request(PushType.COMMIT, ()), lambda *_: None, now_ms)

    def _retry(self, now_ms: int) -> None:
        """Send pushes again that had no response in time."""
        while self.pending:
            first, push = next(iter(self.pending.items()))
            if now_ms - push.sent_ms < self.config.max_push_time_out_ms:
                return
            self._drop(first)
            done, last = self.checker.water_mark(self.peer), first + push.count - 1
            first = max(first, done + 1)
            while first <= last:
                sent = self._push(first, now_ms, last - first + 1)
                if not sent:
                    self._hold(first, PendingPush(now_ms, last - first + 1, 0))
                    return
                first += sent

    def _acknowledged(
        self, epoch: int, first: int, count: int, response: Response | None, now_ms: int
    ) -> None:
        if not self._is_current(epoch) or not isinstance(response, PushEntryResponse):
            return
        if response.code == ResponseCode.INCONSISTENT_STATE:
            if first == self.rejected_index:  # another comparison did not help: do not retry at once
                self.paused_until_ms = now_ms + self.config.dispatcher_pause_ms
            self.rejected_index = first
            self.change_state(PushType.COMPARE)
        elif response.code == ResponseCode.DISK_FULL:
            self.state.full_until_ms[self.peer] = now_ms + FULL_PAUSE_MS
        elif response.code == ResponseCode.SUCCESS and response.index == first:
            # Followers before 0.2.6 do not send how many entries they took: it was at least one.
            taken = min(max(response.count, 1), count)
            push = self.pending.get(first)
            if push is not None and push.count <= taken:
                self._drop(first)
            self.rejected_index = NO_INDEX
            self.checker.raise_water_mark(self.peer, first + taken - 1)

    def _is_current(self, epoch: int) -> bool:
        """Return whether a push belongs to this leadership and was sent after the last comparison."""
        return epoch == self.epoch and self.state.is_leader

    def deadline_ms(self) -> int | None:
        """When `run` has something to do, in ms."""
        if not self.state.is_leader:
            return None
        if self.type is not PushType.APPEND:
            return None if self.comparing else self.paused_until_ms
        due_ms = (self.last_push_ms or 0) + self.config.commit_push_interval_ms
        if self.pending:
            oldest_ms = next(iter(self.pending.values())).sent_ms + self.config.max_push_time_out_ms
            due_ms = min(due_ms, oldest_ms) if self.write_index > self.state.storage.end_index else oldest_ms
        return max(due_ms, self.paused_until_ms)
