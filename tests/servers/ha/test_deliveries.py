"""What a master had delivered its slave does not deliver again; what waited it delivers as master."""

from pathlib import Path

from pyledger.config.ha import HaConfig
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode
from pyledger.protocol.broker.timer_messages import TimerProgress
from pyledger.servers.broker.ha.slave_synchronize import SlaveSynchronize
from pyledger.servers.broker.server import Broker
from pyledger.store.messages.timer_files import TimerFile
from pyledger.wire.remoting.bodies.statistics import TimerMetrics
from pyledger.wire.remoting.bodies.timer_checkpoint import TimerCheckpoint
from tests.net.conftest import Run
from tests.servers.broker.peers import make_request, peer
from tests.servers.broker.test_timers import SetClock, arrived, known, timed
from tests.servers.ha.pair import brokers, caught_up, replication, until
from tests.servers.ha.test_pairs import response_of


async def filled(master: Broker, clock: SetClock) -> None:
    """Three timer messages are delivered and two wait."""
    async with peer(master) as client:
        for seconds in (2, 9, 3, 4, 8):
            assert (await client.request(timed(b"after %d" % seconds, seconds * 1000))).code == 0
        await known(master)
        clock.time_ms += 6_000
        assert await arrived(master, client, 3) == [b"after 2", b"after 3", b"after 4"]


def test_timer_messages_go_on_where_the_master_was(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", clock=clock)
            slave = await pair.start(1, "slave", clock=clock)
            await filled(master, clock)
            await caught_up(master, slave)
            copies = replication(slave).sync
            assert await copies.copy()
            assert slave.context is not None
            assert master.context is not None
            progress = slave.context.tables.timers.progress
            assert progress == master.context.tables.timers.progress
            counts = TimerMetrics.decode(
                (await response_of(master, make_request(RequestCode.GET_TIMER_METRICS))).body
            )
            assert counts.timing_count["T"].count == 2
            await master.close()
            await slave.close()
            assert TimerFile.read(tmp_path / "1" / "config").progress == progress
            successor = await pair.start(1, "async_master", clock=clock, broker_id=0)
            await known(successor)
            async with peer(successor) as client:
                clock.time_ms += 60_000
                found = await arrived(successor, client, 5)
                assert found == [b"after 2", b"after 3", b"after 4", b"after 8", b"after 9"]
                await until(lambda: not successor.context.tables.timers.heap)  # type: ignore[union-attr]
                assert successor.store.queue_range("T", 0).max_offset == 5
                assert successor.store.queue_range(names.TIMER_TOPIC, 0).max_offset == 5

    run(main())


def test_what_was_done_counts_when_all_that_it_speaks_of_is_here(run: Run, tmp_path: Path) -> None:
    """Also offsets: popped messages are passed by them, and the records that note them come after."""

    async def main() -> None:
        clock = SetClock()
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", clock=clock)
            slave = await pair.start(1, "slave", clock=clock, ha={"sync_first_ms": 3_600_000})
            await filled(master, clock)
            await caught_up(master, slave)
            assert slave.context is not None
            assert master.context is not None
            master.context.tables.offsets.commit("G", "T", 0, 3, clock.time_ms)
            tables, end = slave.context.tables, master.store.max_offset
            reached, term = end - 1, 1
            sync = SlaveSynchronize(
                tables,
                HaConfig(role="slave"),
                slave._client,  # type: ignore[arg-type]
                lambda: master.address,
                lambda: reached,
                lambda topic, queue_id: slave.store.queue_range(topic, queue_id).max_offset,
                lambda: term,
            )
            assert await sync.copy()
            assert tables.timers.progress == TimerProgress()
            assert tables.offsets.committed("G", "T", 0) is None
            # In another term the log may come to the same end with other messages: all is asked anew.
            reached, term = end, 2
            master.context.tables.offsets.commit("G", "T", 0, 2, clock.time_ms)
            assert await sync.copy(deliveries_only=True)
            assert tables.timers.progress.next_offset == 5
            assert tables.offsets.committed("G", "T", 0) == 2

    run(main())


def test_a_checkpoint_has_the_offsets_that_java_expects(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", clock=clock)
            empty = TimerCheckpoint.decode(
                (await response_of(master, make_request(RequestCode.GET_TIMER_CHECK_POINT))).body
            )
            assert empty.master_timer_queue_offset == 0
            # All that was due is delivered, so upstream continues from now.
            assert empty.last_read_time_ms == clock.time_ms // 1000 * 1000
            await filled(master, clock)
            found = TimerCheckpoint.decode(
                (await response_of(master, make_request(RequestCode.GET_TIMER_CHECK_POINT))).body
            )
            assert found.first_ms == (clock.time_ms - 6_000 + 8_000) // 1000 * 1000
            # Not after the current time: upstream would not deliver messages that become due in between.
            read_ms = clock.time_ms // 1000 * 1000
            assert (found.last_read_time_ms, found.master_timer_queue_offset) == (read_ms, 5)

    run(main())
