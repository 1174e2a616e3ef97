"""The exceptions of PyLedger: one tree, each class with a stable code and an exit code.

Three kinds, never mixed: operating errors raise the classes below; our own mistakes raise
`InvariantError`; a peer's refusal is data, not an exception. Facts are attributes; the message is
built from them and names the place and the remedy.
"""

from typing import ClassVar

EXIT_PROBLEM = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3


class PyLedgerError(Exception):
    """Root of all operating errors."""

    code: ClassVar[int] = 1000
    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = EXIT_PROBLEM


class ConfigError(PyLedgerError):
    """A setting is unknown or out of range."""

    code = 1100
    exit_code = EXIT_USAGE

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{field}: {problem}" + (f"; {remedy}" if remedy else ""))


class StoreError(PyLedgerError):
    """Something about a store folder."""

    code = 1200


class StoreNotFoundError(StoreError):
    """There is no store at a path."""

    code = 1201
    exit_code = EXIT_UNREACHABLE

    def __init__(
        self, path: str, problem: str, remedy: str = "name the folder that holds `commitlog`"
    ) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class StoreFormatError(StoreError):
    """A store folder has a shape that cannot be opened as it is."""

    code = 1202
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class StoreLockedError(StoreError):
    """Another process writes to the folder."""

    code = 1203
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: another process has this store open for writing; stop it, or open read-only"
        )


class StoreIOError(StoreError):
    """The operating system refused an operation on a file."""

    code = 1204
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str, doing: str, reason: str) -> None:
        self.path, self.doing, self.reason = path, doing, reason
        super().__init__(f"cannot {doing} {path}: {reason}")


class StoreFullError(StoreError):
    """No space at allocation. Nothing acknowledged is lost; writing goes on once there is room."""

    code = 1205
    retriable = True

    def __init__(self, path: str, doing: str) -> None:
        self.path, self.doing = path, doing
        super().__init__(f"cannot {doing} {path}: no space left; free some room or shorten the retention")


class StoreFailedError(StoreError):
    """An earlier flush failed; the failure is the cause. The store takes no more writes until reopened."""

    code = 1206

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: a flush failed, so this store takes no more writes; check the disk, then reopen"
        )


class StoreClosedError(StoreError):
    """The store was closed, or belongs to the parent of a forked process."""

    code = 1207

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: the store is closed (or was opened before a fork); open it again")


class ReadOnlyStoreError(StoreError):
    """A write on a folder that was opened read-only."""

    code = 1208

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: opened read-only; open the store for writing")


class CorruptRecordError(StoreError):
    """Bytes that should be a record are not one."""

    code = 1209

    def __init__(self, path: str, physical_offset: int, problem: str) -> None:
        self.path, self.physical_offset, self.problem = path, physical_offset, problem
        super().__init__(
            f"{path}: record at physical offset {physical_offset}: {problem}; "
            "`pyledger verify` lists all faults, `pyledger repair` cuts them off"
        )


class OffsetOutOfRangeError(StoreError):
    """An offset outside what is stored."""

    code = 1210

    def __init__(self, asked: int, min_offset: int, max_offset: int) -> None:
        self.asked, self.min_offset, self.max_offset = asked, min_offset, max_offset
        super().__init__(f"offset {asked} is outside [{min_offset}, {max_offset})")


class RecordTooLargeError(StoreError):
    """A message or its properties exceed the limit."""

    code = 1211

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.what, self.size_bytes, self.limit_bytes = what, size_bytes, limit_bytes
        super().__init__(f"{what} has {size_bytes} bytes, the limit is {limit_bytes}")


class IllegalMessageError(StoreError):
    """A message that the store must refuse: topic too long, illegal name, missing body."""

    code = 1212
    exit_code = EXIT_USAGE

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class FlushTimeoutError(StoreError, TimeoutError):
    """A synchronous flush was late: the message is stored, its durability is not known."""

    code = 1213
    retriable = True

    def __init__(self, physical_offset: int, timeout_ms: int) -> None:
        self.physical_offset, self.timeout_ms = physical_offset, timeout_ms
        super().__init__(f"message at {physical_offset} is stored but was not on disk within {timeout_ms} ms")


class EntryPositionError(StoreError):
    """A leader wrote an entry at another position than where it would stand here."""

    code = 1214

    def __init__(self, path: str, asked: int, position: int) -> None:
        self.path, self.asked, self.position = path, asked, position
        super().__init__(
            f"{path}: the leader has the entry at {asked}, here it would stand at {position}; "
            "all members of a group need the same data file size"
        )


class CorruptBodyError(StoreError):
    """A packed body cannot be unpacked."""

    code = 1220

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place}: the body {problem}; read it without unpacking to get the stored bytes")


class WireError(PyLedgerError):
    """Bytes or text from outside that we cannot accept."""

    code = 1300


class MalformedJsonError(WireError):
    """A document is not JSON, not even the dialect of Java's fastjson."""

    code = 1301

    def __init__(self, line: int, column: int, problem: str) -> None:
        self.line, self.column, self.problem = line, column, problem
        super().__init__(f"line {line}, column {column}: {problem}")


class MalformedMessageIdError(WireError):
    """A message id that names no place."""

    code = 1302
    exit_code = EXIT_USAGE

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is no message id; one has 32 hex digits, or 56 with an IPv6 host")


class MalformedBatchError(WireError):
    """The body of a batch does not hold whole messages."""

    code = 1303

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(f"batch body at byte {position}: {problem}")


class FrameError(WireError):
    """Bytes of a connection that are no frame. Nothing after them can be trusted: the connection ends."""

    code = 1304

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; the connection cannot go on, check what the peer speaks on this port")


class HeaderFieldError(WireError):
    """A command lacks a field that it must have, or the field cannot be read."""

    code = 1305

    def __init__(self, header: str, field: str, value: str | None) -> None:
        self.header, self.field, self.value = header, field, value
        found = "is missing" if value is None else f"cannot be {value[:100]!r}"
        super().__init__(f"{header}: the field {field} {found}")


class MalformedBodyError(WireError):
    """The body of a command does not hold what its code promises."""

    code = 1306

    def __init__(self, kind: str, place: str, problem: str) -> None:
        self.kind, self.place, self.problem = kind, place, problem
        super().__init__(f"{kind}{place}: {problem}")


class MalformedRecordError(WireError):
    """What a broker sent is no record of a commit log."""

    code = 1307

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(
            f"record at byte {position} of an answer: {problem}; check what answers at the broker"
        )


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
    """A peer refused a request. `response_code` is a `ResponseCode` of `pyledger.wire.codes`."""

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


class ListenError(RemotingError):
    """A server cannot listen on its address."""

    code = 1420

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot listen on {address}: {reason}; choose another address, or free this one")


class DeliveryError(PyLedgerError):
    """What a client asks of a broker cannot be meant."""

    code = 1500


class SubscriptionSyntaxError(DeliveryError):
    """The expression of a subscription cannot be read."""

    code = 1501
    exit_code = EXIT_USAGE

    def __init__(self, expression: str, problem: str) -> None:
        self.expression, self.problem = expression, problem
        super().__init__(f"subscription {expression!r}: {problem}")


class SqlSyntaxError(SubscriptionSyntaxError):
    """The expression of an SQL92 subscription is not in its grammar."""

    code = 1502


class TopicAttributeError(DeliveryError):
    """A change of a topic's attributes that is not allowed."""

    code = 1503
    exit_code = EXIT_USAGE

    def __init__(self, attribute: str, problem: str) -> None:
        self.attribute, self.problem = attribute, problem
        super().__init__(f"topic attribute {attribute!r}: {problem}")


class RebalanceError(PyLedgerError):
    """The queues of a topic cannot be shared; everyone keeps what it has."""

    code = 1600
    retriable = True

    def __init__(self, subject: str, problem: str) -> None:
        self.subject, self.problem = subject, problem
        super().__init__(f"{subject}: {problem}; nothing is allocated")


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


class LedgerError(PyLedgerError):
    """Something about ledgers and bookies."""

    code = 1800


class EntryDigestError(LedgerError):
    """An entry or a LAC packet is not what its writer made."""

    code = 1801

    def __init__(self, ledger_id: int, entry_id: int | None, problem: str) -> None:
        self.ledger_id, self.entry_id, self.problem = ledger_id, entry_id, problem
        which = f"ledger {ledger_id}" if entry_id is None else f"ledger {ledger_id}, entry {entry_id}"
        super().__init__(f"{which}: {problem}; another bookie may have it whole; is the password right?")


class LedgerFrameError(LedgerError):
    """A frame is no request or answer of a bookie, or there is no way to write one."""

    code = 1802

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; check that the peer speaks BookKeeper's protocol")


class LedgerMetadataError(LedgerError):
    """Metadata of a ledger or a bookie is malformed, or would be after a change."""

    code = 1803

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"metadata: {problem}")


class LedgerFileError(LedgerError):
    """A file of a bookie is damaged, or none of the kind that its name says."""

    code = 1804

    def __init__(self, path: str, position: int, problem: str) -> None:
        self.path, self.position, self.problem = path, position, problem
        super().__init__(f"{path}, byte {position}: {problem}; `pyledger bookie verify` lists all faults")


class InvariantError(AssertionError):
    """Our own mistake. Outside the tree on purpose: nobody catches it."""
