"""Our rules of a bookie answer odd requests as a real bookie did."""

from typing import Any

import pytest

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import BookieRules
from pyledger.simulator.bookkeeper.bookie import EntriesInMemory
from pyledger.wire.bookkeeper import version2, version3
from pyledger.wire.bookkeeper.schema import message
from tests.golden.ledger_recordings import STRICTER, lines

SHELL = {"AUTH", "START_TLS", "GET_BOOKIE_INFO", "FORCE_LEDGER"}
"""Operations that need no rule: a shell answers them."""
CONVERSATIONS = {one["connection"]: [] for one in lines("frames/raw-client.jsonl")}
for line in lines("frames/raw-client.jsonl"):
    CONVERSATIONS[line["connection"]].append(line)


@pytest.mark.parametrize("connection", ["v3", "v2"])
def test_a_conversation(connection: str) -> None:
    rules, codec = BookieRules(EntriesInMemory()), version3 if connection == "v3" else version2
    compared = 0
    for one in CONVERSATIONS[connection]:
        if not one.get("response"):
            continue
        request = codec.decode_request(memoryview(bytes.fromhex(one["request"])[4:]))
        if isinstance(request, m.UnknownRequest) or request.version != 3:
            continue
        if request.operation.name in SHELL:
            continue
        outcome = rules.handle(request)
        assert outcome.response is not None
        if one["what"] in STRICTER:
            assert outcome.response.status.name == STRICTER[one["what"]]
            continue
        ours, theirs = codec.encode_response(outcome.response), bytes.fromhex(one["response"])[4:]
        if connection == "v3":
            assert meaning(ours) == meaning(theirs), one["what"]
        else:
            assert ours == theirs, one["what"]
        compared += 1
    assert compared > 12


def meaning(frame: bytes) -> Any:
    return message("Response").FromString(frame)
