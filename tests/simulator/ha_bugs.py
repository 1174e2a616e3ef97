"""Known bugs of masters and slaves, each built into a simulated run.

Each is a small change of a machine, a broker or the operator; the simulator must find its consequence.
"""

from collections.abc import Callable

from pyledger.protocol.ha.group_transfer import PUT_OK, SLAVE_NOT_AVAILABLE, GroupTransfer
from pyledger.protocol.ha.master import LogRange, MasterConnection
from pyledger.simulator.ha.broker import SimulatedBroker
from pyledger.simulator.ha.link import Link
from pyledger.simulator.ha.log import SimulatedLog
from pyledger.simulator.ha.run import HaRun


def any_report_is_believed(part: object) -> None:
    """A master accepts reports beyond its own end, or below an earlier one (rocketmq #1155, #3015)."""

    class Credulous(MasterConnection):
        def _report(self, offset: int, log: LogRange) -> None:
            self._step("report")
            self.next_offset = min(offset, log.end) if self.next_offset < 0 else self.next_offset
            self.slave_ack_offset = offset

    if isinstance(part, Link):
        part.master_side.__class__ = Credulous


def report_before_flush(part: object) -> None:
    """A slave with sync flush reports bytes before they are on its disk (upstream)."""

    class Hasty(SimulatedBroker):
        def _flush(self, then: Callable[[], None]) -> None:
            if not self.is_master:
                then()
            super()._flush(then)

    if isinstance(part, SimulatedBroker):
        part.__class__ = Hasty


def first_report_before_flush(part: object) -> None:
    """A slave that reconnects reports its end before its last bytes are flushed (ours, fixed)."""

    class Hasty(SimulatedBroker):
        @property
        def may_report(self) -> bool:
            return True

    if isinstance(part, SimulatedBroker):
        part.__class__ = Hasty


def send_before_flush(part: object) -> None:
    """A master with sync flush sends bytes before they are on its own disk (upstream)."""

    class Hasty(SimulatedBroker):
        @property
        def confirmed_end(self) -> int:
            return self.log.whole_end

    if isinstance(part, SimulatedBroker):
        part.__class__ = Hasty


def logs_are_not_compared(part: object) -> None:
    """A slave continues at the end of its log without comparing it (upstream)."""
    if isinstance(part, SimulatedBroker):
        part.compares = False


def offsets_are_compared_alone(part: object) -> None:
    """A slave checks that its master has a record at the offset of its last one, but not the bytes."""

    class Careless(SimulatedBroker):
        def _is_same(self, master: SimulatedLog, offset: int) -> bool:
            return len(self.log.record_at(offset)) <= len(master.record_at(offset))

    if isinstance(part, SimulatedBroker):
        part.__class__ = Careless


def half_records_stay(part: object) -> None:
    """A slave keeps an incomplete record when its connection breaks, even for the next master."""
    if isinstance(part, SimulatedBroker):
        part.takes_back = False


def stored_without_slaves(part: object) -> None:
    """A send is answered with success when no slave is connected (upstream since 5.0)."""

    class Generous(GroupTransfer):
        def wait(self, end_offset: int, answer: Callable[[str], None], now_ms: int) -> str | None:
            status = super().wait(end_offset, answer, now_ms)
            return PUT_OK if status == SLAVE_NOT_AVAILABLE else status

    if isinstance(part, SimulatedBroker):
        part.transfer.__class__ = Generous


def late_is_as_good(part: object) -> None:
    """A send is answered with success at its timeout, before slaves have it."""

    class Generous(GroupTransfer):
        def tick(self, now_ms: int) -> None:
            for waiting in self._waiting.values():
                while waiting and waiting[0].deadline_ms <= now_ms:
                    waiting.popleft().answer(PUT_OK)

    if isinstance(part, SimulatedBroker):
        part.transfer.__class__ = Generous


def one_slave_counts_for_all(part: object) -> None:
    """One slave that has the message is enough, however many brokers are required."""

    class Hasty(GroupTransfer):
        def reached(self, wanted: int) -> int:
            return self.push_offset

    if isinstance(part, SimulatedBroker):
        part.transfer.__class__ = Hasty


def connections_count_for_slaves(part: object) -> None:
    """A slave that reconnects counts twice until its old connection times out (upstream)."""

    class Hasty(GroupTransfer):
        def doubt(self, slave: int, sent_offset: int) -> None:
            pass

    if isinstance(part, SimulatedBroker):
        part.transfer.__class__ = Hasty


def offsets_beyond_the_log(part: object) -> None:
    """A slave copies consumer offsets beyond its own log (rocketmq #4771)."""

    class Careless(SimulatedBroker):
        def bound(self, offset: int) -> int:
            return offset

    if isinstance(part, SimulatedBroker):
        part.__class__ = Careless


def whoever_answers_is_promoted(part: object) -> None:
    """The operator promotes a slave without comparing it with the others."""
    if isinstance(part, HaRun):
        part.compares_all = False


def unconnected_slaves_are_promoted(part: object) -> None:
    """A slave is promoted that has not compared its log with the master's since it started (ours, fixed)."""
    if isinstance(part, HaRun):
        part.trusts_all = True


BUGS = (
    any_report_is_believed,
    report_before_flush,
    first_report_before_flush,
    send_before_flush,
    logs_are_not_compared,
    offsets_are_compared_alone,
    half_records_stay,
    stored_without_slaves,
    late_is_as_good,
    one_slave_counts_for_all,
    connections_count_for_slaves,
    offsets_beyond_the_log,
    whoever_answers_is_promoted,
    unconnected_slaves_are_promoted,
)
