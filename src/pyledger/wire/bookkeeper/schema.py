"""BookKeeper's protobuf messages as tables, and the classes that the official library makes of them.

A field is `number label name type`; labels are `!` required, `?` optional, `*` repeated. Tables instead of
generated code: one page to compare with the original, and no compiler at build time.

Source: BookKeeper bookkeeper-proto/src/main/proto/*.proto.
"""

from functools import cache
from typing import Any

from pyledger.errors import MissingExtraError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    from google.protobuf.message import DecodeError, EncodeError
except ImportError as error:
    raise MissingExtraError("BookKeeper's protocol", "protobuf", "ledger") from error

__all__ = ["DecodeError", "EncodeError", "format_text", "message", "parse_text"]

PACKAGE = "pyledger.ledger"
_LABELS = {"?": 1, "!": 2, "*": 3}
_SCALARS = {"int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}
_MESSAGE, _ENUM = 11, 14

ENUMS: dict[str, dict[str, int]] = {
    "ReadFlag": {"FENCE_LEDGER": 1, "ENTRY_PIGGYBACK": 2},
    "AddFlag": {"RECOVERY_ADD": 1},
    "State": {"OPEN": 1, "IN_RECOVERY": 2, "CLOSED": 3},
    "Digest": {"CRC32": 1, "HMAC": 2, "CRC32C": 3, "DUMMY": 4},
}

MESSAGES: dict[str, tuple[str, ...]] = {
    # The protocol. Operation and status are enums upstream; as integers the unknown ones can be seen.
    "BKPacketHeader": ("1!version:int32", "2!operation:int32", "3!txnId:uint64", "4?priority:uint32"),
    "ContextPair": ("1!key:string", "2!value:string"),
    "Request": (
        "1!header:BKPacketHeader",
        "100?readRequest:ReadRequest",
        "101?addRequest:AddRequest",
        "102?authRequest:AuthMessage",
        "103?writeLacRequest:WriteLacRequest",
        "104?readLacRequest:OfLedgerRequest",
        "105?getBookieInfoRequest:GetBookieInfoRequest",
        "106?startTLSRequest:Nothing",
        "107?forceLedgerRequest:OfLedgerRequest",
        "108?getListOfEntriesOfLedgerRequest:OfLedgerRequest",
        "200*requestContext:ContextPair",
    ),
    "Response": (
        "1!header:BKPacketHeader",
        "2!status:int32",
        "100?readResponse:ReadResponse",
        "101?addResponse:AddResponse",
        "102?authResponse:AuthMessage",
        "103?writeLacResponse:OfLedgerResponse",
        "104?readLacResponse:ReadLacResponse",
        "105?getBookieInfoResponse:GetBookieInfoResponse",
        "106?startTLSResponse:Nothing",
        "107?forceLedgerResponse:OfLedgerResponse",
        "108?getListOfEntriesOfLedgerResponse:ListOfEntriesResponse",
    ),
    "Nothing": (),
    "AuthMessage": ("1!authPluginName:string", "2!payload:bytes"),
    "ReadRequest": (
        "100?flag:ReadFlag",
        "1!ledgerId:int64",
        "2!entryId:int64",
        "3?masterKey:bytes",
        "4?previousLAC:int64",
        "5?timeOut:int64",
    ),
    "AddRequest": (
        "100?flag:AddFlag",
        "1!ledgerId:int64",
        "2!entryId:int64",
        "3!masterKey:bytes",
        "4!body:bytes",
        "5?writeFlags:int32",
    ),
    "WriteLacRequest": ("1!ledgerId:int64", "2!lac:int64", "3!masterKey:bytes", "4!body:bytes"),
    "OfLedgerRequest": ("1!ledgerId:int64",),
    "GetBookieInfoRequest": ("1?requested:int64",),
    "ReadResponse": (
        "1!status:int32",
        "2!ledgerId:int64",
        "3!entryId:int64",
        "4?body:bytes",
        "5?maxLAC:int64",
        "6?lacUpdateTimestamp:int64",
    ),
    "AddResponse": ("1!status:int32", "2!ledgerId:int64", "3!entryId:int64"),
    "OfLedgerResponse": ("1!status:int32", "2!ledgerId:int64"),
    "ReadLacResponse": ("1!status:int32", "2!ledgerId:int64", "3?lacBody:bytes", "4?lastEntryBody:bytes"),
    "GetBookieInfoResponse": ("1!status:int32", "2?totalDiskCapacity:int64", "3?freeDiskSpace:int64"),
    "ListOfEntriesResponse": ("1!status:int32", "2!ledgerId:int64", "3?availabilityOfEntriesOfLedger:bytes"),
    # Metadata of a ledger.
    "LedgerMetadataFormat": (
        "1!quorumSize:int32",
        "2!ensembleSize:int32",
        "3!length:int64",
        "4?lastEntryId:int64",
        "5!state:State",
        "6*segment:Segment",
        "7?digestType:Digest",
        "8?password:bytes",
        "9?ackQuorumSize:int32",
        "10?ctime:int64",
        "11*customMetadata:CustomMetadata",
        "12?cToken:int64",
    ),
    "Segment": ("1*ensembleMember:string", "2!firstEntryId:int64"),
    "CustomMetadata": ("1?key:string", "2?value:bytes"),
    # Bookies: who they are, and where they listen.
    "CookieFormat": (
        "1!bookieHost:string",
        "2!journalDir:string",
        "3!ledgerDirs:string",
        "4?instanceId:string",
        "5?indexDirs:string",
    ),
    "BookieServiceInfoFormat": ("6*endpoints:Endpoint", "7*properties:Property"),
    "Endpoint": (
        "1!id:string",
        "2!port:int32",
        "3!host:string",
        "4!protocol:string",
        "5*auth:string",
        "6*extensions:string",
    ),
    # An entry of a map has these fields on the wire, and both are always written.
    "Property": ("1?key:string", "2?value:string"),
    # Under-replicated ledgers, and the auditors and workers that repair them.
    "UnderreplicatedLedgerFormat": ("1*replica:string", "2?ctime:int64"),
    "LockDataFormat": ("1?bookieId:string",),
    "AuditorVoteFormat": ("1?bookieId:string",),
    "LedgerRereplicationLayoutFormat": ("1!type:string", "2!version:int32"),
    "CheckAllLedgersFormat": ("1!checkAllLedgersCTime:int64",),
}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="ledger.proto", package=PACKAGE, syntax="proto2")
    for name, values in ENUMS.items():
        # Values of an enum share one namespace with those of its neighbours; inside a message they do not.
        holder = file.message_type.add(name=f"{name}Values")
        enum = holder.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(message: Any, field: str) -> None:
    left, kind = field.split(":")
    at = next(at for at, letter in enumerate(left) if letter in _LABELS)
    made = message.field.add(name=left[at + 1 :], number=int(left[:at]), label=_LABELS[left[at]])
    if kind in _SCALARS:
        made.type = _SCALARS[kind]
    elif kind in ENUMS:
        made.type, made.type_name = _ENUM, f".{PACKAGE}.{kind}Values.{kind}"
    else:
        made.type, made.type_name = _MESSAGE, f".{PACKAGE}.{kind}"


@cache
def message(name: str) -> Any:
    """The class of a message of the table above."""
    # Any: the classes are made at run time, so no checker knows their fields.
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def parse_text(name: str, text: bytes) -> Any:
    """Read a message in protobuf's text form; fields that are not known are read over.

    Raises:
        ValueError: It is malformed, or a required field is missing.
    """
    whole = message(name)()
    try:
        text_format.Parse(text.decode(), whole, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise ValueError(str(error)) from None
    if not whole.IsInitialized():
        raise ValueError(f"{', '.join(whole.FindInitializationErrors())} missing")
    return whole


def format_text(whole: Any) -> bytes:
    """A message in protobuf's text form, a field a line."""
    text: str = text_format.MessageToString(whole)
    return text.encode()
