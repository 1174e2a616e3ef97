"""Errors of producers and consumers."""

from pyledger.errors.base import PyLedgerError


class ClientError(PyLedgerError):
    """Base of all errors of producers, consumers and their shared client."""

    code = 1700


class ClientStateError(ClientError):
    """A client was used before its start or after its close."""

    code = 1701

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        self.what, self.problem, self.remedy = what, problem, remedy
        super().__init__(f"{what}: {problem}; {remedy}")


class SendError(ClientError):
    """A message was not sent, or its outcome is not known. The last attempt's error is the cause."""

    code = 1702
    retriable = True

    def __init__(self, topic: str, attempts: int, brokers: str, reason: str) -> None:
        self.topic, self.attempts, self.brokers, self.reason = topic, attempts, brokers, reason
        tries = "" if not attempts else " in 1 attempt" if attempts == 1 else f" in {attempts} attempts"
        place = f" at {brokers}" if brokers else ""
        super().__init__(f"message for {topic} not sent{tries}{place}: {reason}")


class ReplyTimeoutError(ClientError, TimeoutError):
    """A request was stored, but no reply arrived in time."""

    code = 1703
    retriable = True

    def __init__(self, topic: str, timeout_ms: int) -> None:
        self.topic, self.timeout_ms = topic, timeout_ms
        super().__init__(
            f"no reply to the request for {topic} within {timeout_ms} ms; check that a replier is running"
        )


class OffsetUnknownError(ClientError):
    """The offset of a group in a queue cannot be read now."""

    code = 1704
    retriable = True

    def __init__(self, group: str, queue: str, reason: str) -> None:
        self.group, self.queue, self.reason = group, queue, reason
        super().__init__(f"cannot read the offset of {group} in {queue}: {reason}")


class NotFoundError(ClientError):
    """The requested object does not exist."""

    code = 1705

    def __init__(self, kind: str, name: str, remedy: str) -> None:
        self.kind, self.name, self.remedy = kind, name, remedy
        super().__init__(f"no {kind} {name}".rstrip() + f"; {remedy}")
