"""Errors of connections and of remote servers."""

from pyledger.errors.base import EXIT_PROBLEM, EXIT_UNREACHABLE, PyLedgerError


class RemotingError(PyLedgerError):
    """Base of all errors of calls to a peer."""

    code = 1400
    exit_code = EXIT_UNREACHABLE


class RemotingConnectError(RemotingError):
    """A connection to an address failed."""

    code = 1401
    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(
            f"cannot connect to {address}: {reason}; check the address and that the server is running"
        )


class RemotingSendRequestError(RemotingError):
    """A request could not be written to the connection. The peer may have received it."""

    code = 1402
    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot send the request to {address}: {reason}")


class RemotingTimeoutError(RemotingError, TimeoutError):
    """A peer did not respond in time. It may have executed the request."""

    code = 1403
    retriable = True

    def __init__(self, address: str, timeout_ms: int) -> None:
        self.address, self.timeout_ms = address, timeout_ms
        super().__init__(f"no response from {address} within {timeout_ms} ms")


class RemotingTooMuchRequestError(RemotingError):
    """Too many calls are in flight. Nothing was sent."""

    code = 1404
    retriable = True

    def __init__(self, address: str, limit: int, setting: str, counted: str = "calls") -> None:
        self.address, self.limit, self.setting = address, limit, setting
        super().__init__(
            f"{limit} {counted} are in flight, so nothing was sent to {address}; slow down or raise {setting}"
        )


class BrokerError(RemotingError):
    """A peer rejected a request. `response_code` is a `ResponseCode` of `pyledger.model.remoting_codes`."""

    code = 1410
    exit_code = EXIT_PROBLEM

    def __init__(self, response_code: int, remark: str | None, address: str = "") -> None:
        self.response_code, self.remark, self.address = response_code, remark, address
        prefix = f"{address}: " if address else ""
        super().__init__(f"{prefix}rejected with code {response_code}" + (f": {remark}" if remark else ""))


class NoRouteError(RemotingError):
    """No name server has a route for the topic."""

    code = 1411
    retriable = True

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"no route for the topic {topic}; create it, or check the name server addresses")


class NotPromotedError(RemotingError):
    """A slave may not become the master now."""

    code = 1421

    def __init__(self, address: str, reason: str, remedy: str = "use --force to promote it anyway") -> None:
        self.address, self.reason = address, reason
        super().__init__(f"{address} does not become master: {reason}; {remedy}")


class AnotherMasterError(RemotingError):
    """Another master has the same name: two masters would write two different logs."""

    code = 1422

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        super().__init__(
            f"{address} is the running master of {name}; stop it first, "
            "or start this broker as its slave: brokerRole=SLAVE, brokerId=1"
        )


class ListenError(RemotingError):
    """A server cannot listen on its address."""

    code = 1420

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(
            f"cannot listen on {address}: {reason}; choose another address, or stop the process that uses it"
        )
