"""Errors of producers and consumers."""

from pyledger.errors.base import PyLedgerError


class ClientError(PyLedgerError):
    """Something about a producer, a consumer or the client they share."""

    code = 1700


class ClientStateError(ClientError):
    """A client was asked for something before its start or after its end."""

    code = 1701

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        self.what, self.problem, self.remedy = what, problem, remedy
        super().__init__(f"{what}: {problem}; {remedy}")


class SendError(ClientError):
    """A message was not sent, or it is not known whether it was. The last attempt's error is the cause."""

    code = 1702
    retriable = True

    def __init__(self, topic: str, attempts: int, brokers: str, reason: str) -> None:
        self.topic, self.attempts, self.brokers, self.reason = topic, attempts, brokers, reason
        tries = "" if not attempts else " in 1 attempt" if attempts == 1 else f" in {attempts} attempts"
        place = f" at {brokers}" if brokers else ""
        super().__init__(f"message for {topic} not sent{tries}{place}: {reason}")


class ReplyTimeoutError(ClientError, TimeoutError):
    """A request was stored, and nobody replied in time."""

    code = 1703
    retriable = True

    def __init__(self, topic: str, timeout_ms: int) -> None:
        self.topic, self.timeout_ms = topic, timeout_ms
        super().__init__(f"no reply to the request for {topic} within {timeout_ms} ms; is a replier running?")


class OffsetUnknownError(ClientError):
    """Where a group stands in a queue cannot be found out now."""

    code = 1704
    retriable = True

    def __init__(self, group: str, queue: str, reason: str) -> None:
        self.group, self.queue, self.reason = group, queue, reason
        super().__init__(f"where {group} stands in {queue} is not known: {reason}")


class NotThereError(ClientError):
    """What was asked for is not there."""

    code = 1705

    def __init__(self, kind: str, name: str, remedy: str) -> None:
        self.kind, self.name, self.remedy = kind, name, remedy
        super().__init__(f"there is no {kind} {name}".rstrip() + f"; {remedy}")
