"""Requests that nobody should send: each is answered, or refused in our words, and the table stays sound."""

import asyncio
import contextlib
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig
from pyledger.errors import PyLedgerError
from pyledger.model.remoting_codes import RequestCode
from pyledger.protocol.namesrv.route_table import RouteTable
from pyledger.servers.namesrv.kv_config import KVConfig
from pyledger.servers.namesrv.processor import RequestProcessor
from pyledger.wire.remoting.command import FLAG_RESPONSE, RemotingCommand, decode
from tests.golden.remoting_frames import RecordedFrame, recorded_frames
from tests.servers.namesrv.peers import registration

ASKED = (
    *range(100, 107), 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904, 9999,
)  # fmt: skip
FIELDS = (
    "brokerName",
    "brokerAddr",
    "clusterName",
    "haServerAddr",
    "brokerId",
    "heartbeatTimeoutMillis",
    "compressed",
    "enableActingMaster",
    "bodyCrc32",
    "topic",
    "acceptStandardJsonOnly",
    "namespace",
    "key",
    "value",
    "cluster",
    "__ZONE_NAME",
    "__ZONE_MODE",
    "maxOffset",
    "epoch",
)
VALUES = st.sampled_from(
    ["", "broker-a", "C", "Orders", "true", "0", "1", "-1", "9" * 30, "127.0.0.1:10911", "\x00"]
)
BODIES = st.sampled_from(
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b"x=1",
        b"orderMessageEnable=true",
        b'{"topicConfigSerializeWrapper":null}',
        b'{"queueDatas":[{"brokerName":"broker-a"}]}',
        b'{"counter":"x"}',
        b"[" * 5_000,
    ]
)
VERSIONS = st.sampled_from([0, 36, 479])


class Wire:
    """Stands for a connection where no bytes flow."""

    closed = False
    remote_address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}


@pytest.fixture(scope="module")
def recorded() -> list[RecordedFrame]:
    """Requests to Java's name server."""
    return [
        one
        for one in recorded_frames()
        if one.described["to"] == "nameserver" and not one.described["flag"] & FLAG_RESPONSE
    ]


@pytest.fixture
def processor(tmp_path: Any) -> RequestProcessor:
    """A name server without its port, which allows everything."""
    made = RequestProcessor(
        RouteTable(NamesrvConfig(admin_enabled=True, support_acting_master=True)),
        KVConfig(tmp_path / "kv.json"),
        NetConfig(),
        now_ms=lambda: 0,
        notify=lambda _: None,
        removals_due=lambda: None,
    )
    assert ask(made, registration()).code == 0
    return made


def ask(processor: RequestProcessor, command: RemotingCommand) -> RemotingCommand:
    async def main() -> Any:
        found: Any = processor.handlers()(Wire(), command)  # type: ignore[arg-type]
        return await found if asyncio.iscoroutine(found) else found

    answer = asyncio.run(main())
    assert isinstance(answer, RemotingCommand)
    assert answer.opaque == command.opaque
    return answer


def is_sound(processor: RequestProcessor) -> None:
    processor.routes.remove_queued()
    for topic in chain.from_iterable(processor.routes.topics()):
        route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
        assert ask(processor, route).code == 0
    assert ask(processor, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


bounded = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@bounded
@given(st.sampled_from(ASKED), st.dictionaries(st.sampled_from(FIELDS), VALUES), BODIES, VERSIONS)
def test_any_fields_and_body_are_answered_or_refused(
    processor: RequestProcessor, code: int, fields: dict[str, str], body: bytes, version: int
) -> None:
    command = RemotingCommand.request(code, body=body, ext_fields=fields)
    command.version = version
    with contextlib.suppress(PyLedgerError):
        ask(processor, command)
    is_sound(processor)


@bounded
@given(st.data())
def test_damaged_recordings_are_answered_or_refused(
    processor: RequestProcessor, recorded: list[RecordedFrame], data: st.DataObject
) -> None:
    frame = bytearray(data.draw(st.sampled_from(recorded)).data[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PyLedgerError):
        ask(processor, decode(bytes(frame)))
    is_sound(processor)
