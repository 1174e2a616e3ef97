"""Clients ask the broker which queues they shall consume."""

import json
from pathlib import Path
from typing import Any

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.net.peers import RawPeer
from tests.servers.broker.peers import broker, heartbeat, peer, send

ASKED = {
    "clientId": "c1",
    "consumerGroup": "G",
    "messageModel": "CLUSTERING",
    "strategyName": "AVG",
    "topic": "T",
}


async def call(client: RawPeer, code: RequestCode, **body: Any) -> RemotingCommand:
    return await client.request(RemotingCommand.request(code, body=json.dumps(body).encode()))


def test_mode_decides_what_a_client_is_given(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, admin_enabled=True) as one, peer(one) as client:
            assert (await client.request(send("T", queue_id=0))).code == 0
            nobody = await call(client, RequestCode.QUERY_ASSIGNMENT, **ASKED)
            assert bytes(nobody.body) == b"{}"
            assert (
                await client.request(heartbeat("c1", "T"))
            ).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            await client.receive()
            pulled = await call(client, RequestCode.QUERY_ASSIGNMENT, **ASKED)
            given = json.loads(bytes(pulled.body))["messageQueueAssignments"]
            assert [one["mode"] for one in given] == ["PULL"] * 4
            mode = {"consumerGroup": "G", "topic": "T", "mode": "POP", "popShareQueueNum": 0}
            assert (await call(client, RequestCode.SET_MESSAGE_REQUEST_MODE, **mode)).code == 0
            wrong = {**mode, "topic": "U"}
            answer = await call(client, RequestCode.SET_MESSAGE_REQUEST_MODE, **wrong)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            # As an operator does before the group's first consumer comes.
            assert (
                await call(client, RequestCode.SET_MESSAGE_REQUEST_MODE, **{**mode, "consumerGroup": "New"})
            ).code == 0
        async with broker(tmp_path) as one, peer(one) as client:
            await client.request(heartbeat("c1", "T"))
            await client.receive()
            popped = await call(client, RequestCode.QUERY_ASSIGNMENT, **ASKED)
            (given,) = json.loads(bytes(popped.body))["messageQueueAssignments"]
            assert given == {
                "messageQueue": {"brokerName": "broker-a", "queueId": -1, "topic": "T"},
                "mode": "POP",
            }
            refused = await call(client, RequestCode.SET_MESSAGE_REQUEST_MODE, **mode)
            assert refused.code == ResponseCode.NO_PERMISSION
            modes = await client.request(RemotingCommand.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
            assert json.loads(bytes(modes.body))["messageRequestModeMap"] == {
                "T": {"G": mode, "New": {**mode, "consumerGroup": "New"}}
            }

    run(main())
