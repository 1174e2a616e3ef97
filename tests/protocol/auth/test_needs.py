"""Requests that name topics of the system need what their sender can have."""

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode
from pyledger.protocol.auth.model import ResourceKind
from pyledger.protocol.auth.required_permissions import needs_of


def needed(code: RequestCode, **fields: str) -> list[tuple[ResourceKind, str]]:
    return [(need.kind, need.name) for need in needs_of(code, fields, "C", changes=False)]


def test_answer_to_a_check_needs_no_right_on_the_half_topic() -> None:
    assert needed(RequestCode.END_TRANSACTION, topic=names.HALF_TOPIC) == []
    assert needed(RequestCode.END_TRANSACTION, topic="T") == [(ResourceKind.TOPIC, "T")]


def test_message_that_was_put_back_needs_what_its_topic_needs() -> None:
    for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        first = needed(code, consumerGroup="G", topic="T")
        assert (ResourceKind.TOPIC, "T") in first
        assert needed(code, consumerGroup="G", topic="%RETRY%G_T") == first
        assert needed(code, consumerGroup="G", topic="%RETRY%Other_T") != first
