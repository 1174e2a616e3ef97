"""Master and slave in one process: logs become equal, sends wait for slaves, slaves serve reads."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pyledger._core import PullLimits
from pyledger.errors import ConfigError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import Broker
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.remoting.bodies.ha_status import HaStatus
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.servers.broker.peers import SUSPEND, WITH_SUBSCRIPTION, make_request, peer, pull, send
from tests.servers.broker.test_messages import bodies
from tests.servers.ha.link import linked
from tests.servers.ha.pair import Pair, brokers, caught_up, log_bytes, replication, same_view, until


async def response_of(one: Broker, request: RemotingCommand) -> RemotingCommand:
    """The response of a broker to a request."""
    async with peer(one) as client:
        return await client.request(request)


async def send_many(one: Broker, count: int, size: int = 100, **fields: Any) -> list[RemotingCommand]:
    """Answers to messages that were sent one after the other."""
    async with peer(one) as client:
        return [
            await client.request(send("T", b"%06d" % n + bytes(size), queue_id=n % 4, **fields))
            for n in range(count)
        ]


async def following(pair: Pair, count: int, size: int = 100, **settings: Any) -> tuple[Broker, Broker]:
    """A master with messages and a slave that has them."""
    master = await pair.start(0, "async_master")
    await send_many(master, count, size)
    slave = await pair.start(1, "slave", **settings)
    await caught_up(master, slave)
    return master, slave


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_slave_has_the_bytes_of_its_master_and_its_own_queues(run: Run, tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", store={"flush_disk_type": flush})
            await send_many(master, 50)
            slave = await pair.start(1, "slave", store={"flush_disk_type": flush})
            await caught_up(master, slave)
            await send_many(master, 300, 10_000)
            await caught_up(master, slave)
            assert master.store.max_offset > 2 << 20
            seen = await same_view(master, slave)
            assert seen.found_by_key["T", "U1"]
            assert sum(len(view.messages) for view in seen.queues.values()) == 350
        assert not (tmp_path / "1" / "abort").exists()
        with StoreReader.open(tmp_path / "1") as found:
            assert found.clean
            assert sum(1 for _ in found.messages(order="queue")) == 350

    run(main())


def test_a_sync_master_answers_when_its_slave_has_the_message(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            # An empty frame would be what gets through the link below, in the place of a message.
            never = dict.fromkeys(("slave_timeout_ms", "heartbeat_interval_ms"), 3_600_000)
            master = await pair.start(0, "sync_master", ha=never)
            alone = await response_of(master, send("T", b"alone"))
            assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert alone.ext_fields["queueOffset"] == "0"
            service = master.context.replication.service  # type: ignore[union-attr]
            async with linked(service.port) as link:
                slave = await pair.start(1, "slave", ha={"master_address": link.address})
                await caught_up(master, slave)
                await until(lambda: slaves_of(master)[0].ack_offset == master.store.max_offset)
                async with peer(master) as client:
                    for number in range(50):
                        answer = await client.request(send("T", b"%d" % number))
                        assert answer.code == 0, answer.remark
                        assert slave.store.max_offset == master.store.max_offset
                link.carries.clear()
                # The link has asked for one more piece already.
                assert (await response_of(master, send("T", b"the last to get through"))).code == 0
                sending = asyncio.ensure_future(response_of(master, send("T", b"late")))
                await until(lambda: service.transfer.waiting_count == 1)
                service.transfer.tick(1 << 62)
                late = await sending
                assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert late.ext_fields["queueOffset"] == "52"
                hasty = await response_of(master, send("T", b"hasty", properties={"WAIT": "false"}))
                assert hasty.code == 0
                link.carries.set()

    run(main())


def slaves_of(master: Broker) -> Any:
    assert master.context is not None
    return master.context.replication.service.slaves()  # type: ignore[union-attr]


def test_many_sends_wait_together(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "sync_master")
            slave = await pair.start(1, "slave")
            await until(lambda: len(slaves_of(master)) == 1 and slaves_of(master)[0].ack_offset == 0)
            answers = await asyncio.gather(*(send_many(master, 20) for _ in range(10)))
            assert {one.code for some in answers for one in some} == {0}
            await same_view(master, slave)

    run(main())


def test_a_slave_takes_no_sends_and_serves_pulls(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            _, slave = await following(pair, 8)
            await until(lambda: replication(slave).sync.count > 0)
            before = log_bytes(slave.store)
            for request in (
                send("T", b"no"),
                send("T", b"no", code=RequestCode.SEND_MESSAGE),
                make_request(RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="G", delayLevel=0),
            ):
                assert (await response_of(slave, request)).code == ResponseCode.SYSTEM_BUSY
            end = make_request(
                RequestCode.END_TRANSACTION,
                producerGroup="P",
                tranStateTableOffset=0,
                commitLogOffset=0,
                commitOrRollback=8,
                fromTransactionCheck="false",
                msgId="x",
            )
            assert (await response_of(slave, end)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert log_bytes(slave.store) == before
            found = await response_of(slave, pull("T", 1))
            assert [body[:6] for body in bodies(found)] == [b"000001", b"000005"]
            # The master is alive, so the next pull shall go there.
            assert found.ext_fields["suggestWhichBrokerId"] == "0"

    run(main())


@pytest.mark.parametrize(
    "filtered", [{}, {"expression_type": "SQL92", "subscription": "n IS NULL"}], ids=["tags", "sql"]
)
def test_a_master_sends_consumers_that_read_from_disk_to_its_slave(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filtered: dict[str, str]
) -> None:
    # 40 % of the machine's memory are 10,000 bytes.
    monkeypatch.setattr(
        "pyledger.servers.broker.processors.pull_message.default_limits",
        lambda: PullLimits(resident_bytes=10_000),
    )

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await send_many(master, 40, 1000)
            far = await response_of(master, pull("T", max_msg_nums=2, **filtered))
            assert [body[:6] for body in bodies(far)] == [b"000000", b"000004"]
            assert far.ext_fields["suggestWhichBrokerId"] == "1"
            near = await response_of(master, pull("T", 0, 8, max_msg_nums=2, **filtered))
            assert [body[:6] for body in bodies(near)] == [b"000032", b"000036"]
            assert near.ext_fields["suggestWhichBrokerId"] == "0"

    run(main())


def test_a_pull_held_at_a_slave_is_answered_when_the_message_comes(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master, slave = await following(pair, 4, ha={"sync_first_ms": 0})
            await until(lambda: replication(slave).sync.count > 0)
            await master.close()
            await until(lambda: slave.context is not None and not slave.context.broker_state.master_alive)
            assert slave.context is not None
            held = slave.context.held
            async with peer(slave) as client:
                waiting = asyncio.ensure_future(
                    client.request(pull("T", 0, 1, flags=SUSPEND | WITH_SUBSCRIPTION, hold_ms=3_600_000))
                )
                await until(lambda: held.count == 1)
                await send_many(await pair.start(0, "async_master"), 4)
                # By the message, or because the master is back.
                assert (await waiting).code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)

    run(main())


def test_a_slave_that_was_away_continues_where_it_stopped(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            slave = await pair.start(1, "slave")
            await send_many(master, 100, 5000)
            await caught_up(master, slave)
            await slave.close()
            await send_many(master, 300, 5000)
            slave = await pair.start(1, "slave")
            await caught_up(master, slave)
            await master.close()
            master = await pair.start(0, "async_master")
            await send_many(master, 100, 5000)
            await same_view(master, slave)

    run(main())


def test_an_empty_slave_gets_the_last_file_alone(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master, slave = await following(pair, 300, 5000)
            start = slave.store.min_offset
            assert start == master.store.max_offset // (1 << 20) * (1 << 20) > 0
            assert (await same_view(master, slave)).log_start == start

    run(main())


def test_tables_are_copied_and_offsets_do_not_go_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await send_many(master, 20)
            await response_of(master, pull("T"))
            slave = await pair.start(1, "slave")
            assert master.context is not None
            assert slave.context is not None
            ours, theirs = slave.context.tables, master.context.tables
            theirs.offsets.commit("G", "T", 0, 4, 1)
            copies = replication(slave).sync
            await until(lambda: copies.count > 0)
            done = copies.count
            await until(lambda: copies.count > done)
            assert ours.topics.topics == theirs.topics.topics
            assert ours.topics.version == theirs.topics.version
            assert ours.groups.groups == theirs.groups.groups
            assert ours.offsets.committed("G", "T", 0) == 4
            # A consumer commits at the slave while the master is away.
            ours.offsets.commit("G", "T", 0, 5, 1)
            assert await copies.copy()
            assert ours.offsets.committed("G", "T", 0) == 5
            # A reset on purpose.
            theirs.offsets.commit("G", "T", 0, 2, 1)
            assert await copies.copy()
            assert ours.offsets.committed("G", "T", 0) == 2
            # Consumed at the master, but not here yet: what takes its place when the master dies is not.
            theirs.offsets.commit("G", "T", 1, 1 << 20, 1)
            assert await copies.copy()
            assert ours.offsets.committed("G", "T", 1) == slave.store.queue_range("T", 1).max_offset == 5
            theirs.delays.adopt({3: 7}, theirs.delays.version.next(5))
            assert await copies.copy()
            assert ours.delays.offsets == {3: 7}
            await slave.close()
            for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"):
                assert (tmp_path / "1" / "config" / name).exists()

    run(main())


def test_master_and_slave_report_their_status(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master, slave = await following(pair, 5)
            await until(lambda: slaves_of(master)[0].ack_offset == master.store.max_offset)
            found = HaStatus.decode(
                (await response_of(master, make_request(RequestCode.GET_BROKER_HA_STATUS))).body
            )
            assert (found.master, found.in_sync_slave_nums) == (True, 1)
            assert found.ha_connection_info[0].slave_ack_offset == master.store.max_offset
            own = HaStatus.decode(
                (await response_of(slave, make_request(RequestCode.GET_BROKER_HA_STATUS))).body
            )
            assert (own.master, own.ha_client_info.activated) == (False, True)
            assert own.ha_client_info.max_offset == master.store.max_offset

    run(main())


def test_a_slave_that_stops_following_lets_its_thread_end_before_its_socket(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            _, slave = await following(pair, 5)
            link = replication(slave).ha_client.connection
            assert link is not None
            await replication(slave).ha_client.close()
            assert link.ended.result() == "closed"

    run(main())


@pytest.mark.parametrize(("role", "number"), [("slave", 0), ("sync_master", 1), ("async_master", 2)])
def test_a_role_and_an_id_that_do_not_fit_raise(run: Run, tmp_path: Path, role: str, number: int) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            with pytest.raises(ConfigError, match="brokerRole"):
                await pair.start(number, role)

    run(main())
