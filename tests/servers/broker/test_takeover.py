"""Our broker on a folder of upstream's: records of popped messages wait as timer messages, and in queues."""

import struct
from pathlib import Path

from pyledger.model import names
from pyledger.model.message import Message
from pyledger.servers.broker.server import Broker
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.record.record import decode_records
from pyledger.wire.remoting.bodies.pop import ACK_TAG, CHECKPOINT_TAG, PopAcks, PopCheckpoint, PopHandle
from tests.net.conftest import Run
from tests.net.peers import until
from tests.servers.broker.peers import SMALL, broker, peer, pull, send
from tests.servers.broker.test_pop import HIDDEN_MS, ack
from tests.servers.broker.test_timers import BASE_MS, SetClock, known

REVIVE = names.revive_topic("DefaultCluster")
DUE_MS = BASE_MS // 1000 * 1000 + HIDDEN_MS
HIDDEN = {1: {2}, 3: {3}}
"""Queue offsets that are not acknowledged, by the first one that was popped with them."""


def popped(offset: int, count: int = 1, pop_ms: int = BASE_MS) -> Message:
    """Upstream's record of messages that were popped together from queue 0."""
    note = PopCheckpoint(
        start_offset=offset,
        pop_time=pop_ms,
        invisible_time=HIDDEN_MS,
        count=count,
        queue_id=0,
        topic="T",
        group="G",
        differences=tuple(range(count)),
        broker_name="broker-a",
    )
    return Message(REVIVE, note.encode(), 5, CHECKPOINT_TAG)


def acknowledged(start: int, *offsets: int) -> Message:
    """Upstream's record of messages that are done."""
    note = PopAcks(
        start_offset=start, group="G", topic="T", queue_id=0, pop_time=BASE_MS, ack_offsets=offsets
    )
    return Message(REVIVE, note.encode(), 5, ACK_TAG)


def delayed(record: Message, due_ms: int) -> Message:
    """The same as it waits in upstream's wheel."""
    place = {names.REAL_TOPIC: REVIVE, names.REAL_QUEUE_ID: "3", names.TIMER_OUT_MS: str(due_ms)}
    return Message(names.TIMER_TOPIC, record.body, 0, record.tags, properties=place)


def put_back(one: Broker) -> int:
    return one.store.queue_range("%RETRY%G_T", 0).max_offset


async def left(folder: Path, clock: SetClock) -> None:
    """Of 0 to 7, upstream has popped 0 to 5; 1 and 4 are done; 0 was put back. Its wheel is lost."""
    async with broker(folder, clock=clock) as one, peer(one) as client:
        for number in range(8):
            await client.request(send("T", b"%d" % number))
        assert one.context is not None
        one.context.tables.offsets.commit(names.REVIVE_GROUP, REVIVE, 5, 0, BASE_MS)
        one.context.tables.offsets.commit("G", "T", 0, 6, BASE_MS)
    with StoreEngine.open(folder / "store", **SMALL) as store:
        for record in (
            popped(0),  # dealt with: the group's offset says so
            popped(1, 2),
            acknowledged(1, 1),
            delayed(popped(3, 2), DUE_MS - 1000),
            delayed(acknowledged(3, 4), DUE_MS),
            delayed(popped(5), DUE_MS - 1000),
        ):
            store.append(record)
    for path in (folder / "store").glob("config/timerProgress.json*"):
        path.unlink()
    (folder / "store/config/timercheck").write_bytes(struct.pack(">4q", BASE_MS, 0, 0, 0).ljust(4096, b"\0"))


def test_what_upstream_has_noted_is_taken_over(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        await left(tmp_path, clock)
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            # Its record may not be known yet.
            handle = PopHandle(5, BASE_MS, HIDDEN_MS, 3, "0", "broker-a", 0, 5)
            assert await ack(client, handle.encode()) == 0
            await known(one)
            assert one.context is not None
            pops = one.context.pops
            await until(lambda: not one.context.tables.timers.heap and not pops.open.keep_early)
            await until(
                lambda: {key.start_offset: two.open for key, two in pops.open.by_key.items()} == HIDDEN
            )
            assert not put_back(one)
            clock.time_ms += 2 * HIDDEN_MS
            await until(lambda: not pops.open.by_key)
            found = decode_records((await client.request(pull("%RETRY%G_T"))).body)
            assert sorted(message.body for message in found) == [b"2", b"3"]
        async with broker(tmp_path, clock=clock) as one:
            await known(one)
            assert one.context is not None
            assert not one.context.pops.open.by_key
            assert put_back(one) == 2

    run(main())
