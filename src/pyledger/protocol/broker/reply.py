"""Replies: who waits for one, and what is handed over.

Source: RocketMQ broker/.../ReplyMessageProcessor.java.
"""

from collections.abc import Mapping

from pyledger.model import names
from pyledger.model.remoting_codes import ResponseCode
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.rejection import Rejection

PUSH_TIMEOUT_MS = 10_000
"""How long a requester may take to confirm that it has the reply."""


def requester_of(properties: Mapping[str, str]) -> str | Rejection:
    """Client id of who waits for a reply."""
    client_id = properties.get(names.REPLY_TO_CLIENT)
    if client_id is None:
        problem = f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        return Rejection(ResponseCode.SYSTEM_ERROR, problem)
    return client_id


def not_handed_over(client_id: str, *, connected: bool) -> Rejection:
    """Response to the replier; its reply may be stored all the same."""
    if not connected:
        problem = f"push reply message fail, channel of <{client_id}> not found."
    else:
        problem = f"push reply message to {client_id} fail."
    return Rejection(ResponseCode.SYSTEM_ERROR, problem)


def pushed_properties(
    properties: Mapping[str, str], broker_state: BrokerState, now_ms: int
) -> dict[str, str]:
    """The properties of a reply as it is handed over."""
    return {
        **properties,
        names.MSG_REGION: broker_state.region,
        names.TRACE_ON: "true" if broker_state.trace else "false",
        names.PUSH_REPLY_TIME: str(now_ms),
    }
