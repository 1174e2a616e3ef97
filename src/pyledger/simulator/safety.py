"""Rules of a simulated world; the first violation ends the run."""


class SafetyError(AssertionError):
    """A rule that must always hold was violated."""


def require(holds: bool, rule: str, detail: object) -> None:
    """Raise SafetyError when a rule does not hold."""
    if not holds:
        raise SafetyError(f"{rule}: {detail}")
