"""The base of all narrators."""

from pyledger.config.delivery import DeliveryConfig
from tests.support.datadriven import Step


class Narrator:
    """Calls the method named as the command; `at=` sets the time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.config = DeliveryConfig()

    def run_step(self, step: Step) -> str:
        self.now_ms = step.integer("at", self.now_ms)
        said: str = getattr(self, step.command.replace("-", "_"))(step)
        return said or "ok"


def place(text: str) -> tuple[str, int]:
    topic, _, queue_id = text.rpartition("/")
    return topic, int(queue_id)
