"""When the ledgers of lost bookies are looked for.

A bookie is lost when it has a cookie and is not registered. One that is lost alone may just be started again:
it is waited for. Where two are lost meanwhile, nobody is waited for.

Source: BookKeeper replication/AuditorBookieCheckTask.java, Auditor.java.
"""

from collections.abc import Collection


class AuditRules:
    """Decides when lost bookies are acted on.

    Attributes:
        lost: Bookies that are lost as of the last news.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.lost: frozenset[str] = frozenset()
        self._due_ms: int | None = None
        self._handled: frozenset[str] = frozenset()

    def look(self, known: Collection[str], there: Collection[str], now_ms: int, delay_ms: int) -> None:
        """Bookies came or went, or the delay was changed.

        Args:
            known: All that ever were.
            there: Those that are registered.
            now_ms: The time.
            delay_ms: How long a single bookie that is lost is waited for.
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
        """Act now on all that are lost, also on those that were acted on before."""
        self._handled = frozenset()
        if self.lost:
            self._due_ms = now_ms

    def deadline_ms(self) -> int | None:
        """When `due` is needed; None: not before there are news."""
        return self._due_ms

    def due(self, now_ms: int) -> frozenset[str]:
        """Bookies whose ledgers have to be marked now; told once."""
        if self._due_ms is None or now_ms < self._due_ms:
            return frozenset()
        self._due_ms = None
        self._handled = self.lost
        return self.lost
