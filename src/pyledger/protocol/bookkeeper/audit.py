"""When the ledgers of lost bookies are marked.

A bookie is lost when it has a cookie and is not registered. A single lost bookie may just be restarting, so
its ledgers are marked after a delay. If two are lost, their ledgers are marked at once.

Source: BookKeeper replication/AuditorBookieCheckTask.java, Auditor.java.
"""

from collections.abc import Collection


class AuditRules:
    """Decides when the ledgers of lost bookies are marked.

    Attributes:
        lost: Bookies that were lost at the last `update`.
    """

    def __init__(self) -> None:
        """No bookie is known yet."""
        self.lost: frozenset[str] = frozenset()
        self._due_ms: int | None = None
        self._handled: frozenset[str] = frozenset()

    def update(self, known: Collection[str], there: Collection[str], now_ms: int, delay_ms: int) -> None:
        """Handle a change of the bookies or of the delay.

        Args:
            known: All bookies with a cookie.
            there: The bookies that are registered.
            now_ms: The time.
            delay_ms: How long to wait for a single lost bookie.
        """
        before, self.lost = self.lost, frozenset(known) - frozenset(there)
        self._handled &= self.lost
        fresh = self.lost - self._handled
        if not fresh:
            self._due_ms = None
        elif len(fresh) > 1:
            self._due_ms = now_ms
        elif self._due_ms is None or before != self.lost:
            self._due_ms = now_ms + delay_ms
        else:
            self._due_ms = min(self._due_ms, now_ms + delay_ms)

    def force(self, now_ms: int) -> None:
        """Mark the ledgers of all lost bookies now, also of those that `due` returned before."""
        self._handled = frozenset()
        if self.lost:
            self._due_ms = now_ms

    def deadline_ms(self) -> int | None:
        """Return when to call `due`; None: not before the next `update`."""
        return self._due_ms

    def due(self, now_ms: int) -> frozenset[str]:
        """Return the bookies whose ledgers have to be marked now, each once."""
        if self._due_ms is None or now_ms < self._due_ms:
            return frozenset()
        self._due_ms = None
        self._handled = self.lost
        return self.lost
