"""A reply is handed to the client that waits for it, and stored."""

import asyncio
from pathlib import Path

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.wire.record.properties import decode_properties
from pyledger.wire.record.record import decode_records
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat, ProducerEntry
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from pyledger.wire.remoting.headers.send import ReplyMessageRequestHeader
from tests.net.conftest import Run
from tests.net.peers import RawPeer
from tests.servers.broker.peers import broker, peer, pull, send

TOPIC = "DefaultCluster_REPLY_TOPIC"


def reply(body: bytes, **properties: str) -> RemotingCommand:
    """A consumer's reply."""
    code = RequestCode.SEND_REPLY_MESSAGE_V2
    return send(TOPIC, body, properties={"MSG_TYPE": "reply", **properties}, code=code)


async def ask(client: RawPeer) -> None:
    """Become the client that replies can be handed to."""
    said = Heartbeat(client_id="requester", producer_data_set=(ProducerEntry(group_name="A"),))
    beat = RemotingCommand.request(RequestCode.HEART_BEAT, body=said.encode())
    assert (await client.request(beat)).code == 0


@pytest.mark.parametrize("stored", [True, False])
def test_reply_reaches_its_requester(run: Run, tmp_path: Path, stored: bool) -> None:
    async def main() -> None:
        rules = {"store_replies": stored}
        async with broker(tmp_path, delivery=rules) as one, peer(one) as requester, peer(one) as replier:
            await ask(requester)
            answered = asyncio.ensure_future(
                replier.request(reply(b"re:hello", REPLY_TO_CLIENT="requester", CORRELATION_ID="c"))
            )
            pushed = await requester.receive()
            assert (pushed.code, bytes(pushed.body)) == (326, b"re:hello")
            header = pushed.header(ReplyMessageRequestHeader)
            assert (header.topic, header.producer_group) == (TOPIC, "P")
            assert header.born_host.startswith("127.0.0.1:")
            assert header.store_host == one.address
            properties = decode_properties((header.properties or "").encode())
            assert properties.items() >= {"CORRELATION_ID": "c", "MSG_REGION": "DefaultRegion"}.items()
            assert "PUSH_REPLY_TIME" in properties
            assert not answered.done()
            await requester.send(encode_frame(pushed.response()))
            answer = await answered
            assert answer.code == 0
            assert (answer.ext_fields["msgId"] != "0") is stored
            found = list(decode_records((await replier.request(pull(TOPIC))).body))
            assert [message.body for message in found] == ([b"re:hello"] if stored else [])
            assert all("PUSH_REPLY_TIME" not in message.properties for message in found)

    run(main())


def test_sender_of_a_reply_without_requester_gets_an_error(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as replier:
            answer = await replier.request(reply(b"late", REPLY_TO_CLIENT="gone"))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "push reply message fail, channel of <gone> not found."
            assert answer.ext_fields["queueOffset"] == "0"
            answer = await replier.request(reply(b"whose"))
            assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
            assert len(list(decode_records((await replier.request(pull(TOPIC))).body))) == 2

    run(main())
