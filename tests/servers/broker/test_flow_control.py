"""Responses of a broker that cannot keep up, or whose disk is full."""

from pathlib import Path

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.store.messages import services
from pyledger.wire.remoting.command import encode_frame
from tests.net.conftest import Run
from tests.servers.broker.peers import broker, make_request, peer, pull, send


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE])
def test_sends_are_rejected_while_too_many_wait_for_their_flush(
    run: Run, tmp_path: Path, code: RequestCode
) -> None:
    async def main() -> None:
        async with (
            broker(tmp_path, store={"flush_disk_type": "sync"}, waiting_sends_max=2) as one,
            peer(one) as client,
        ):
            assert (await client.request(send("T"))).code == 0
            requests = [send("T", code=code) for _ in range(4)]
            for number, request in enumerate(requests):
                request.opaque = number
            # All are read at once, so none of the first two is flushed when the others come.
            await client.send(b"".join(encode_frame(request) for request in requests))
            answers = {answer.opaque: answer for answer in [await client.receive() for _ in requests]}
            assert [answers[number].code for number in range(4)] == [0, 0, 2, 2]
            assert (answers[3].remark or "").startswith("[REJECTREQUEST]system busy")
            # What was refused is not stored, and once the flush is through all is as before.
            assert one.store.queue_range("T", 0).max_offset == 3
            assert (await client.request(send("T"))).code == 0
            runtime = await client.request(make_request(RequestCode.GET_BROKER_RUNTIME_INFO))
            assert b'"sendThreadPoolQueueSize":"0"' in bytes(runtime.body)
            assert b'"sendThreadPoolQueueCapacity":"2"' in bytes(runtime.body)

    run(main())


def test_full_disk_rejects_sends_and_serves_pulls(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_percent = 99

    async def main() -> None:
        nonlocal used_percent
        async with broker(tmp_path) as one, peer(one) as client:
            assert (await client.request(send("T"))).code == 0
            monkeypatch.setattr(services, "disk_usage", lambda _path: used_percent)
            one.store.clean()
            rejected = await client.request(send("T"))
            assert rejected.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (await client.request(pull("T"))).code == 0
            assert one.context is not None
            assert one.context.counts.puts_failed == 1
            used_percent = 10
            one.store.clean()
            assert (await client.request(send("T"))).code == 0

    run(main())
