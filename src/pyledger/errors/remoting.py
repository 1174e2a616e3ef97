"""Errors of connections and of what answers at their other end."""

from pyledger.errors.base import EXIT_PROBLEM, EXIT_UNREACHABLE, PyLedgerError


class RemotingError(PyLedgerError):
    """Something about a call to a peer."""

    code = 1400
    exit_code = EXIT_UNREACHABLE


class RemotingConnectError(RemotingError):
    """There is no connection to an address."""

    code = 1401
    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot connect to {address}: {reason}; check the address and that the peer runs")


class RemotingSendRequestError(RemotingError):
    """A request could not be handed to the connection: whether the peer saw it is not known."""

    code = 1402
    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot send the request to {address}: {reason}")


class RemotingTimeoutError(RemotingError, TimeoutError):
    """A peer did not answer in time: whether it did what was asked is not known."""

    code = 1403
    retriable = True

    def __init__(self, address: str, timeout_ms: int) -> None:
        self.address, self.timeout_ms = address, timeout_ms
        super().__init__(f"no answer from {address} within {timeout_ms} ms")


class RemotingTooMuchRequestError(RemotingError):
    """Too many calls are under way. Nothing was sent."""

    code = 1404
    retriable = True

    def __init__(self, address: str, limit: int, setting: str, counted: str = "calls") -> None:
        self.address, self.limit, self.setting = address, limit, setting
        super().__init__(
            f"{limit} {counted} are under way, so none was sent to {address}; slow down or raise {setting}"
        )


class BrokerError(RemotingError):
    """A peer refused a request. `response_code` is a `ResponseCode` of `pyledger.model.remoting_codes`."""

    code = 1410
    exit_code = EXIT_PROBLEM

    def __init__(self, response_code: int, remark: str | None, address: str = "") -> None:
        self.response_code, self.remark, self.address = response_code, remark, address
        place = f"{address}: " if address else ""
        super().__init__(f"{place}refused with code {response_code}" + (f": {remark}" if remark else ""))


class NoRouteError(RemotingError):
    """No name server knows a broker for a topic."""

    code = 1411
    retriable = True

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"no route for the topic {topic}; create it, or check the list of name servers")


class NotPromotedError(RemotingError):
    """A slave must not become the master now."""

    code = 1421

    def __init__(self, address: str, reason: str, remedy: str = "--force does it all the same") -> None:
        self.address, self.reason = address, reason
        super().__init__(f"{address} does not become master: {reason}; {remedy}")


class AnotherMasterError(RemotingError):
    """Another broker is the master of the same name: two would make two logs."""

    code = 1422

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        super().__init__(
            f"{address} is the master of {name} and alive; stop it first, "
            "or start this broker as its slave: brokerRole=SLAVE, brokerId=1"
        )


class ListenError(RemotingError):
    """A server cannot listen on its address."""

    code = 1420

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot listen on {address}: {reason}; choose another address, or free this one")
