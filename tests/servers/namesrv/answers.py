"""What answers of a name server mean, to compare ours with Java's."""

from typing import Any

from pyledger.wire import fastjson
from pyledger.wire.remoting.command import RemotingCommand

NOT_SET = "not set any response code"
"""Java leaves this remark on an answer of code 0 where it forgot to clear it."""


def meaning(answer: RemotingCommand) -> dict[str, Any]:
    """What an answer says: lists in any order, as Java's hash maps have none."""
    body = fastjson.parse(bytes(answer.body).decode()) if len(answer.body) else None
    remark = None if answer.code == 0 and answer.remark == NOT_SET else answer.remark
    return {"code": answer.code, "remark": remark, "fields": answer.ext_fields, "body": in_order(body)}


def in_order(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(in_order, value), key=str)
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    return value
