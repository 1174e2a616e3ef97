"""Timer messages over a real socket: they wait, are delivered, are recalled, and outlive restarts."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pyledger.clock import SystemClock
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import Broker
from pyledger.wire.record.record import decode_records
from tests.net.conftest import Run
from tests.net.peers import RawPeer, until
from tests.servers.broker.peers import broker, make_request, peer, pull, send

HOUR_MS = 3_600_000
BASE_MS = 2_000_000_000_500


class SetClock(SystemClock):
    """A wall clock that stands where a test sets it."""

    def __init__(self) -> None:
        self.time_ms = BASE_MS

    def now_ms(self) -> int:
        return self.time_ms


def timed(body: bytes, delay_ms: int, **properties: str) -> Any:
    """A producer's timer message."""
    return send("T", body, properties={"TIMER_DELAY_MS": str(delay_ms), **properties})


async def arrived(one: Broker, client: RawPeer, count: int) -> list[bytes]:
    """Bodies in queue 0 of T, when there are `count`."""
    await until(lambda: one.store.queue_range("T", 0).max_offset >= count)
    return [message.body for message in decode_records((await client.request(pull("T"))).body)]


async def known(one: Broker) -> None:
    """Wait until the broker has read its timer topic."""
    assert one.context is not None
    timers = one.context.tables.timers
    end = one.store.queue_range(names.TIMER_TOPIC, 0).max_offset
    await until(lambda: timers.next_offset == end)


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_message_waits_for_its_time(run: Run, tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        clock = SetClock()
        kind = {"flush_disk_type": flush}
        async with broker(tmp_path, clock=clock, store=kind) as one, peer(one) as client:
            sent = await client.request(timed(b"late", 5000))
            assert (sent.code, sent.ext_fields["queueOffset"]) == (0, "0")
            assert sent.ext_fields["recallHandle"]
            assert (await client.request(timed(b"past", -5))).code == 0
            assert await arrived(one, client, 1) == [b"past"]
            # Not SYSTEM_ERROR: clients would send it again.
            assert (await client.request(timed(b"far", 73 * HOUR_MS))).code == ResponseCode.MESSAGE_ILLEGAL
            await known(one)
            clock.time_ms += 4999
            assert (await client.request(pull("T", 0, 1))).code == ResponseCode.PULL_NOT_FOUND
            clock.time_ms += 1000
            assert await arrived(one, client, 2) == [b"past", b"late"]
            (_, message) = decode_records((await client.request(pull("T"))).body)
            assert message.properties["TIMER_OUT_MS"] == str((BASE_MS + 5000) // 1000 * 1000)
            assert message.properties["REAL_TOPIC"] == "T"

    run(main())


def test_restart_delivers_each_message_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            for number, hours in enumerate((48, 1, 2)):
                assert (await client.request(timed(b"%d" % number, hours * HOUR_MS))).code == 0
            await known(one)
            clock.time_ms += HOUR_MS + 1000
            assert await arrived(one, client, 1) == [b"1"]
        clock.time_ms += HOUR_MS
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert await arrived(one, client, 2) == [b"1", b"2"]
            assert (await client.request(timed(b"3", 1000))).code == 0
        clock.time_ms += 46 * HOUR_MS
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert await arrived(one, client, 4) == [b"1", b"2", b"3", b"0"]
        table = json.loads((tmp_path / "store/config/timerProgress.json").read_text())["timerProgress"]
        assert (table["nextOffset"], table["restartOffset"]) == (4, 4)

    run(main())


def test_message_is_recalled(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock, delivery={"recall": True}) as one, peer(one) as client:
            sent = await client.request(timed(b"no", 5000, UNIQ_KEY="A"))
            assert (await client.request(timed(b"yes", 6000, UNIQ_KEY="B"))).code == 0
            handle = sent.ext_fields["recallHandle"]
            recall = make_request(
                RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle, producerGroup="P"
            )
            answer = await client.request(recall)
            assert (answer.code, answer.ext_fields) == (0, {"msgId": "A"})
            await known(one)
            clock.time_ms += 8000
            assert await arrived(one, client, 1) == [b"yes"]

    run(main())


def test_what_upstream_has_delivered_is_not_delivered_again(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            for number, hours in enumerate((1, 2)):
                assert (await client.request(timed(b"%d" % number, hours * HOUR_MS))).code == 0
        config = tmp_path / "store/config"
        for path in config.glob("timerProgress.json*"):
            path.unlink()
        check = struct.pack(">qqq", BASE_MS + HOUR_MS + 500, 0, 2)
        (config / "timercheck").write_bytes(check.ljust(4096, b"\0"))
        clock.time_ms += 3 * HOUR_MS
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert await arrived(one, client, 1) == [b"1"]

    run(main())
