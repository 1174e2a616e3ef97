"""Rules of a simulated world; the first breach ends the run."""


class SafetyError(AssertionError):
    """A rule that must always hold was broken."""


def require(holds: bool, rule: str, detail: object) -> None:
    """End the run where a rule does not hold."""
    if not holds:
        raise SafetyError(f"{rule}: {detail}")
