"""Trouble aimed at leaders: cut off as they append, commit or are elected, and back for the next one.

What takes several leaders in a certain order, as figure 8 of the Raft paper does, comes by itself then.
Frames on links that are cut are often not lost but late, as on connections that hang and live on.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyledger.simulator.dledger.member import DLedgerMember, Moment
from pyledger.simulator.world import Network, World

CHANCES = (0.03, 0.15, 0.5)
ISOLATION_MS_MAX = 2500
HELD_MS_MAX = 8000


class LeaderFaults:
    """Follows the leaders of a group, whoever they are."""

    def __init__(
        self,
        world: World,
        network: Network,
        members: Mapping[str, DLedgerMember],
        hand_over: Callable[[DLedgerMember], None],
    ) -> None:
        """Watch all members; `hand_over` asks whoever leads to make way for one."""
        random = world.random
        self.world, self.network, self.members, self.names = world, network, members, list(members)
        self.hand_over = hand_over
        self.victim: str | None = None
        """The member that was last isolated."""
        self.company: list[str] = []
        """And who was with it."""
        self.returns = random.random() < 0.6
        """Is who was cut off last to lead again at once, and then to be cut off with somebody else?"""
        self.comes_back = 0.9 if self.returns else random.choice((0.0, 0.7))
        """How often who was cut off last is to lead again."""
        self.comes_back_ms = 60 if self.returns else 600
        """After how long at most."""
        self.isolation_ms_min = 1000 if self.returns else 50
        """It may be too short for an election, or long enough for several."""
        self.chances = {
            Moment.ELECTED: random.choice((0.0, 0.1)),
            Moment.APPENDED: random.choice(CHANCES),
            Moment.COMMITTED: random.choice(CHANCES),
        }
        self.strikes = 0
        network.held = 1.0 if self.returns else random.choice((0.0, 0.5, 1.0))
        network.held_ms_max = HELD_MS_MAX // 3 if self.returns else HELD_MS_MAX
        for member in members.values():
            member.seen = self.saw

    def saw(self, member: DLedgerMember, moment: Moment) -> None:
        """A leader is at a moment that matters."""
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

    def strike(self, name: str, apart_from: Sequence[str] = ()) -> None:
        """Leave a leader with less than half of the group; whoever was cut off before is back."""
        random, network = self.world.random, self.network
        if self.world.healed:
            return
        others = [one for one in self.names if one != name]
        most = max((len(others) - 2) // 2, 0)
        count = most if self.returns else random.randint(0, most)
        company = random.sample([one for one in others if one not in apart_from], count)
        self.world.note(f"strikes {name} with {company}")
        self.victim, self.company = name, company
        side = {name, *company}
        network.cut = {(a, b) for a in self.names for b in self.names if (a in side) != (b in side)}
        network.late = {(one, name) for one in company}
        self.strikes += 1
        strike = self.strikes
        self.world.after(random.randint(self.isolation_ms_min, ISOLATION_MS_MAX), lambda: self.mend(strike))

    def mend(self, strike: int) -> None:
        """All links carry again, if they are still cut by that strike."""
        if strike == self.strikes:
            self.network.cut = set()
            self.network.late = set()

    def bring_back(self, strike: int, name: str) -> None:
        """Let a leader that was cut off lead again, as soon as it is no longer behind."""
        if strike == self.strikes and not self.world.healed:
            self.network.cut = set()
            pause_ms = self.world.random.randint(self.comes_back_ms // 12, self.comes_back_ms // 2)
            self.world.after(pause_ms, lambda: self.hand_over(self.members[name]))
