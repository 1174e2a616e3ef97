"""Recorded sessions with Java's name server, played to ours: it gives the same answers."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pyledger.model.remoting_codes import RequestCode
from pyledger.model.topic import DataVersion
from pyledger.servers.namesrv.server import NameServer
from pyledger.wire import fastjson
from pyledger.wire.remoting.command import decode
from tests.golden.remoting_frames import RecordedFrame, recorded_frames
from tests.net.conftest import Run
from tests.net.peers import RawPeer
from tests.servers.namesrv.answers import meaning
from tests.servers.namesrv.peers import name_server, peer, registration

MASTER = {"binary": ("binary-register-slave", 3), "json": ("json-register-slave", 12)}


def session(case: str) -> list[tuple[RecordedFrame, RecordedFrame]]:
    """Requests to the name server in order, each with its recorded answer."""
    frames = {one.described["n"]: one for one in recorded_frames() if one.case == case}
    return [
        (frames[one.described["answers"]], one)
        for one in frames.values()
        if one.described["from"] == "nameserver" and one.described.get("answers") is not None
    ]


def recorded(case: str, number: int) -> RecordedFrame:
    return next(one for one in recorded_frames() if (one.case, one.described["n"]) == (case, number))


async def play(server: NameServer, case: str) -> list[str]:
    """Play a session on as many connections as were recorded; returns where answers differ."""
    differing = []
    async with AsyncExitStack() as stack:
        connections: dict[int, RawPeer] = {}
        for request, answer in session(case):
            number = request.described["connection"]
            if number not in connections:
                connections[number] = await stack.enter_async_context(peer(server))
            await connections[number].send(request.data)
            ours, theirs = meaning(await connections[number].receive()), meaning(decode(answer.data[4:]))
            if ours != theirs:
                differing.append(f"{request.name}\n  ours   {ours}\n  theirs {theirs}")
    return differing


def recorded_body(case: str, code: RequestCode) -> Any:
    """Body of the first answer to a code."""
    frame = next(answer for request, answer in session(case) if request.described["code"] == code)
    return fastjson.parse(bytes(decode(frame.data[4:]).body).decode())


@pytest.mark.parametrize("kind", ["binary", "json"])
def test_requests_of_all_kinds_are_answered_as_java_answers(run: Run, tmp_path: Path, kind: str) -> None:
    case = f"{kind}-nameserver"
    topics = recorded_body(case, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    version = DataVersion.parse(recorded_body(case, RequestCode.QUERY_DATA_VERSION))
    addresses = recorded_body(case, RequestCode.GET_BROKER_MEMBER_GROUP)["brokerMemberGroup"]["brokerAddrs"]

    async def main() -> list[str]:
        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as broker:
            command = registration(
                addresses[0], topics=topics, version=version, cluster_name="DefaultCluster"
            )
            assert (await broker.request(command)).code == 0
            return await play(server, case)

    found = run(main())
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", ["binary", "json"])
def test_slave_comes_and_goes_as_with_java(run: Run, tmp_path: Path, kind: str) -> None:
    case, number = MASTER[kind]
    if kind == "binary":
        # Earlier in that recording a pair of this namespace was put and deleted again.
        (tmp_path / "kv").mkdir()
        (tmp_path / "kv" / "kvConfig.json").write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{}}}')

    async def main() -> list[str]:
        async with name_server(tmp_path) as server, peer(server) as broker:
            assert (await broker.request(decode(recorded(case, number).data[4:]))).code == 0
            return await play(server, case)

    found = run(main())
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", ["binary", "json"])
def test_broker_starts_and_stops_as_with_java(run: Run, tmp_path: Path, kind: str) -> None:
    async def main() -> list[str]:
        async with name_server(tmp_path) as server:
            started = await play(server, f"{kind}-register-broker")
            return started + await play(server, f"{kind}-unregister-broker")

    found = run(main())
    assert not found, "\n".join(found)


def test_sessions_were_recorded() -> None:
    codes = {request.described["code"] for request, _ in session("json-nameserver")}
    assert len(codes) == 16
    assert RequestCode.GET_BROKER_MEMBER_GROUP in codes
