"""Pops in order over a real socket: a queue is locked until all that was popped from it is done."""

from pathlib import Path
from typing import Any

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import Broker
from pyledger.store.files.config_files import OrderedPopTable
from pyledger.wire.remoting.bodies.pop import BatchAck, BatchAckRequest, encode_bit_set
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import RawPeer, until
from tests.servers.broker.peers import broker, make_request, peer, send
from tests.servers.broker.test_pop import HIDDEN_MS, ack, named, pop, popped
from tests.servers.broker.test_timers import SetClock

JAVA_FILE = """{
	"table":{"T@G":{0:{
				"a":"first",
				"cm":5,
				"i":10000,
				"l":1700000000000,
				"o":[7,1,3],
				"oc":{8:2},
				"ot":{8:1700000090000},
				"popTime":1700000000000
			}
		}
	}
}"""
"""What a 5.3.3 broker writes: offsets count from the first, bit 0 and bit 2 are done."""


def in_order(count: int = 2, **fields: Any) -> RemotingCommand:
    """A consumer's pop from all queues, in order."""
    return pop(order="true", maxMsgNums=count, **fields)


async def filled(client: RawPeer, count: int) -> None:
    for number in range(count):
        await client.request(send("T", b"%d" % number))


def held(one: Broker) -> int:
    assert one.context is not None
    return one.context.held.count


def test_queue_is_locked_until_all_is_acknowledged(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            await filled(client, 5)
            answer = await client.request(in_order())
            (first, one_handle), (second, other_handle) = popped(answer)
            assert (first, second, answer.ext_fields["reviveQid"]) == (b"0", b"1", "999")
            assert answer.ext_fields["orderCountInfo"] == "0 0 0"
            assert answer.ext_fields["restNum"] == "3"
            assert (await client.request(in_order())).code == ResponseCode.POLLING_TIMEOUT
            # Out of turn: the offset waits for the first.
            assert await ack(client, other_handle) == 0
            assert (await client.request(in_order())).code == ResponseCode.POLLING_TIMEOUT
            assert await ack(client, one_handle) == 0
            assert await ack(client, one_handle) == 0
            assert [body for body, _ in popped(await client.request(in_order()))] == [b"2", b"3"]
            assert one.context is not None
            assert one.context.tables.offsets.committed("G", "T", 0) == 2
            # Their time is over: they come again in their place, and say how often they did.
            clock.time_ms += HIDDEN_MS
            again = await client.request(in_order(3))
            assert [body for body, _ in popped(again)] == [b"2", b"3", b"4"]
            assert again.ext_fields["orderCountInfo"] == "0 qo0%2 1;0 qo0%3 1;0 0 0"
            # Popped again since: the old handle moves nothing.
            beyond = make_request(RequestCode.ACK_MESSAGE, **named(one_handle, offset=4))
            assert (await client.request(beyond)).code == 0
            assert one.context.tables.offsets.committed("G", "T", 0) == 2
            mine = popped(again)[0][1]
            wrong = await client.request(make_request(RequestCode.ACK_MESSAGE, **named(mine, offset=5)))
            assert wrong.code == ResponseCode.MESSAGE_ILLEGAL
            assert one.store.queue_range("%RETRY%G_T", 0).max_offset == 0

    run(main())


def test_lost_answer_is_given_again_to_the_same_attempt(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, clock=SetClock()) as one, peer(one) as client:
            await filled(client, 3)
            await client.request(in_order(attemptId="a"))
            assert (await client.request(in_order(attemptId="b"))).code == ResponseCode.POLLING_TIMEOUT
            again = await client.request(in_order(attemptId="a"))
            assert [body for body, _ in popped(again)] == [b"0", b"1"]
            assert again.ext_fields["orderCountInfo"] == "0 0 0"

    run(main())


def test_waiting_pop_gets_what_an_acknowledgement_sets_free(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as first, peer(one) as second:
            await filled(first, 3)
            handles = [handle for _, handle in popped(await first.request(in_order(invisibleTime=600_000)))]
            await second.send(encode_frame(in_order(pollTime=600_000)))
            await until(lambda: held(one))
            values = {"consumerGroup": "G", "topic": "T", "queueId": 0, "bornTime": 0, "order": "true"}
            no = await first.request(make_request(RequestCode.NOTIFICATION, **values, pollTime=0))
            assert no.ext_fields["hasMsg"] == "false"
            starts = [int(handle.split(" ")[0]) for handle in handles]
            acks = BatchAck(
                consumer_group="G",
                topic="T",
                retry="0",
                start_offset=starts[0],
                queue_id=0,
                revive_queue_id=999,
                pop_time=int(handles[0].split(" ")[1]),
                bit_set=encode_bit_set([0, 1]),
            )
            body = BatchAckRequest(broker_name="broker-a", acks=(acks,)).encode()
            done = await first.request(RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=body))
            assert done.code == 0
            assert [body for body, _ in popped(await second.receive())] == [b"2"]

    run(main())


def test_waiting_pop_gets_what_is_given_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as first, peer(one) as second:
            await filled(first, 1)
            ((_, handle),) = popped(await first.request(in_order(invisibleTime=600_000)))
            await second.send(encode_frame(in_order(pollTime=600_000)))
            await until(lambda: held(one))
            values = named(handle, invisibleTime=0)
            changed = await first.request(make_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **values))
            assert (changed.code, changed.ext_fields["reviveQid"]) == (0, "999")
            assert changed.ext_fields["popTime"] == handle.split(" ")[1]
            answer = await second.receive()
            assert [body for body, _ in popped(answer)] == [b"0"]
            assert answer.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 0 1"

    run(main())


def test_waiting_pop_gets_what_is_not_done_in_time(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as first, peer(one) as second:
            await filled(first, 1)
            assert popped(await first.request(in_order(invisibleTime=300)))
            await second.send(encode_frame(in_order(pollTime=600_000, invisibleTime=600_000)))
            assert [body for body, _ in popped(await second.receive())] == [b"0"]

    run(main())


def test_restart_knows_what_is_locked(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            await filled(client, 3)
            handles = [handle for _, handle in popped(await client.request(in_order(3)))]
            assert await ack(client, handles[1]) == 0
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert (await client.request(in_order())).code == ResponseCode.POLLING_TIMEOUT
            assert await ack(client, handles[0]) == 0
            assert one.context is not None
            assert one.context.tables.offsets.committed("G", "T", 0) == 2
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            clock.time_ms += HIDDEN_MS
            assert [body for body, _ in popped(await client.request(in_order(3)))] == [b"2"]

    run(main())


def test_reset_unlocks(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            await filled(client, 3)
            assert len(popped(await client.request(in_order(2)))) == 2
            assert one.context is not None
            one.context.tables.offsets.reset("G", "T", 0, 1)
            assert [body for body, _ in popped(await client.request(in_order(1)))] == [b"1"]

    run(main())


def test_file_is_upstreams(tmp_path: Path) -> None:
    file = tmp_path / "consumerOrderInfo.json"
    file.write_text(JAVA_FILE)
    table = OrderedPopTable.read(tmp_path)
    batch = table.batches["T", "G"][0]
    assert (batch.offsets, batch.done, batch.next_offset) == ((7, 8, 10), {7, 10}, 8)
    assert batch.locked_until_ms(1_700_000_050_000) == 1_700_000_090_000
    file.unlink()
    table.write(tmp_path)
    assert OrderedPopTable.read(tmp_path) == table
    assert "".join(file.read_text().split()) == "".join(JAVA_FILE.split())
