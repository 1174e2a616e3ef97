"""Timer messages and pops on their way through brokers: ours begins, Java's goes on, ours ends.

Ours runs by a clock of its own: an hour behind, later hours ahead. So it is fixed who finds what due.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode
from pyledger.servers.broker.server import Broker
from pyledger.wire.record.record import decode_records
from tests.interop.peers import Peers
from tests.interop.test_pop_order import VERSION, javas
from tests.net.peers import RawPeer, raw, until
from tests.servers.broker.peers import broker, make_request, peer, pull, send
from tests.servers.broker.test_pop import ack, pop, popped
from tests.servers.broker.test_timers import HOUR_MS, SetClock, known

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TIMED, POPPED, RETRY = "TT", "T", "%RETRY%G_T"
SIZES = {
    "mapped_file_size_bytes": 4 << 20,
    "consume_queue_file_size_bytes": 120_000,
    "index_slots": 1000,
    "index_entries": 4000,
}
"""What `--small` says to Java's broker."""
LOOK_S = 0.1
"""Pause between two questions to Java's broker."""
Bodies = list[bytes]


def timed(body: bytes, delay_ms: int) -> Any:
    key = {"UNIQ_KEY": f"key-of-{body.decode()}", "TIMER_DELAY_MS": str(delay_ms)}
    return send(TIMED, body, properties=key)


async def held(client: RawPeer, topic: str, count: int) -> Bodies:
    """Bodies in queue 0 of a topic, once there are so many."""
    while True:
        found = await client.request(make_request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0))
        if int(found.ext_fields.get("offset", 0)) >= count:
            page = await client.request(pull(topic))
            return [message.body for message in decode_records(page.body)]
        await asyncio.sleep(LOOK_S)


async def pop_all(client: RawPeer, count: int, **fields: Any) -> dict[bytes, str]:
    """Handles of messages by their bodies, once so many were popped."""
    handles: dict[bytes, str] = {}
    while len(handles) < count:
        handles |= popped(await client.request(pop(queueId=0, maxMsgNums=count - len(handles), **fields)))
    return handles


async def idle(one: Broker) -> None:
    """Wait until a broker of ours has delivered and put back all that is due."""
    assert one.context is not None
    parts = one.context
    await known(one)
    await until(lambda: not parts.tables.timers.heap and not parts.pops.open.by_key)
    await until(lambda: not parts.pops.open.keep_early)


async def begin(folder: Path, clock: SetClock) -> None:
    """Ours delivers one timer message, leaves two; of three popped messages one is acknowledged."""
    async with broker(folder, clock=clock, store=SIZES, name="broker-a") as one, peer(one) as client:
        for body, delay_ms in ((b"ours", 5_000), (b"java", 600_000), (b"late", 2 * HOUR_MS)):
            assert (await client.request(timed(body, delay_ms))).code == 0
        await known(one)
        clock.time_ms += 10_000
        assert await held(client, TIMED, 1) == [b"ours"]
        for number in range(6):
            await client.request(send(POPPED, b"%d" % number))
        handles = await pop_all(client, 3)
        assert sorted(handles) == [b"0", b"1", b"2"]
        assert await ack(client, handles[b"1"]) == 0


async def go_on(client: RawPeer) -> None:
    """Java's delivers what is due by now, puts back what was not acknowledged, and leaves some itself."""
    assert (await client.request(timed(b"last", 2 * HOUR_MS))).code == 0
    assert await held(client, TIMED, 2) == [b"ours", b"java"]
    assert sorted(await held(client, RETRY, 2)) == [b"0", b"2"]
    handles = await pop_all(client, 5, invisibleTime=2 * HOUR_MS)
    assert sorted(handles) == [b"0", b"2", b"3", b"4", b"5"]
    for body in (b"0", b"3"):
        assert await ack(client, handles[body]) == 0


async def end(folder: Path, clock: SetClock) -> tuple[Bodies, Bodies]:
    """Ours delivers the rest and puts the rest back; what is there then, and stays so after a restart."""
    async with broker(folder, clock=clock, store=SIZES, name="broker-a") as one:
        await idle(one)
    async with broker(folder, clock=clock, store=SIZES, name="broker-a") as one, peer(one) as client:
        await idle(one)
        assert one.store.queue_range(names.revive_topic("DefaultCluster"), 0).max_offset
        return await held(client, TIMED, 4), await held(client, RETRY, 5)


def call(port: int, story: Callable[[RawPeer], Any]) -> None:
    async def main() -> None:
        async with raw(port) as client:
            await story(client)

    asyncio.run(main())


def test_each_broker_goes_on_where_the_other_was(peers: Peers, tmp_path: Path) -> None:
    peers(VERSION)
    clock = SetClock()
    real_ms = super(SetClock, clock).now_ms()
    clock.time_ms = real_ms - HOUR_MS
    asyncio.run(begin(tmp_path, clock))
    with javas(tmp_path) as port:
        call(port, go_on)
    clock.time_ms = real_ms + 12 * HOUR_MS
    delivered, put_back = asyncio.run(end(tmp_path, clock))
    assert delivered[:2] == [b"ours", b"java"]
    assert sorted(delivered[2:]) == [b"last", b"late"]
    assert sorted(put_back[:2]) == [b"0", b"2"]
    assert sorted(put_back[2:]) == [b"2", b"4", b"5"]
