"""Faults aimed at leaders: isolate one as it appends, commits or is elected, and reconnect it for the next.

Faults that need several leaders in a certain order, such as figure 8 of the Raft paper, occur this way.
Frames on disconnected links are often delayed instead of lost, as on connections that hang and recover.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyledger.simulator.dledger.member import DLedgerMember, Moment
from pyledger.simulator.world import Network, World

CHANCES = (0.03, 0.15, 0.5)
ISOLATION_MS_MAX = 2500
HELD_MS_MAX = 8000


class LeaderFaults:
    """Watches the leaders of a group and isolates them."""

    def __init__(
        self,
        world: World,
        network: Network,
        members: Mapping[str, DLedgerMember],
        hand_over: Callable[[DLedgerMember], None],
    ) -> None:
        """Watch all members; `hand_over` requests a leadership transfer to a member."""
        random = world.random
        self.world, self.network, self.members, self.names = world, network, members, list(members)
        self.hand_over = hand_over
        self.victim: str | None = None
        """The member that was last isolated."""
        self.company: list[str] = []
        """The members isolated together with it."""
        self.returns = random.random() < 0.6
        """Whether the last victim soon leads again, and is then isolated with other members."""
        self.comes_back = 0.9 if self.returns else random.choice((0.0, 0.7))
        """Share of elections after which the last victim is reconnected to lead again."""
        self.comes_back_ms = 60 if self.returns else 600
        """After this time at most."""
        self.isolation_ms_min = 1000 if self.returns else 50
        """An isolation may be too short for an election, or long enough for several."""
        self.chances = {
            Moment.ELECTED: random.choice((0.0, 0.1)),
            Moment.APPENDED: random.choice(CHANCES),
            Moment.COMMITTED: random.choice(CHANCES),
        }
        self.strikes = 0
        network.held = 1.0 if self.returns else random.choice((0.0, 0.5, 1.0))
        network.held_ms_max = HELD_MS_MAX // 3 if self.returns else HELD_MS_MAX
        for member in members.values():
            member.on_moment = self.on_moment

    def on_moment(self, member: DLedgerMember, moment: Moment) -> None:
        """Decide whether to isolate a leader, or to reconnect the last victim."""
        random, victim = self.world.random, self.victim
        if (
            moment is Moment.ELECTED
            and victim not in (None, member.name)
            and random.random() < self.comes_back
        ):
            pause_ms = random.randint(self.comes_back_ms // 6, self.comes_back_ms)
            self.world.after(pause_ms, partial(self.bring_back, self.strikes, str(victim)))
            return
        if moment is Moment.ELECTED and victim == member.name and self.returns and random.random() < 0.9:
            self.world.after(random.randint(1, 60), partial(self.strike, member.name, self.company))
            return
        if not self.world.healed and self.world.random.random() < self.chances[moment]:
            self.strike(member.name)

    def strike(self, name: str, excluded: Sequence[str] = ()) -> None:
        """Isolate a leader with less than half of the group, and reconnect the last victim."""
        random, network = self.world.random, self.network
        if self.world.healed:
            return
        others = [one for one in self.names if one != name]
        most = max((len(others) - 2) // 2, 0)
        count = most if self.returns else random.randint(0, most)
        company = random.sample([one for one in others if one not in excluded], count)
        self.world.note(f"isolates {name} with {company}")
        self.victim, self.company = name, company
        side = {name, *company}
        network.disconnected = {(a, b) for a in self.names for b in self.names if (a in side) != (b in side)}
        network.late = {(one, name) for one in company}
        self.strikes += 1
        strike = self.strikes
        self.world.after(
            random.randint(self.isolation_ms_min, ISOLATION_MS_MAX), lambda: self.reconnect(strike)
        )

    def reconnect(self, strike: int) -> None:
        """Reconnect all links, unless a later strike disconnected others."""
        if strike == self.strikes:
            self.network.disconnected = set()
            self.network.late = set()

    def bring_back(self, strike: int, name: str) -> None:
        """Reconnect an isolated leader, and transfer the leadership to it once it may have caught up."""
        if strike == self.strikes and not self.world.healed:
            self.network.disconnected = set()
            pause_ms = self.world.random.randint(self.comes_back_ms // 12, self.comes_back_ms // 2)
            self.world.after(pause_ms, lambda: self.hand_over(self.members[name]))
