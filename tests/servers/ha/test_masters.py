"""Two masters with one name: the second is rejected, and an old one steps down before its successor."""

from pathlib import Path

import pytest

from pyledger.errors import AnotherMasterError, NotPromotedError, StoreClosedError
from pyledger.model.remoting_codes import ResponseCode
from pyledger.servers.broker.ha.replication import MasterReplication
from pyledger.servers.broker.server import Broker
from pyledger.servers.broker.supervisor.ha_supervisor import HaSupervisor
from tests.net.conftest import Run
from tests.servers.broker.peers import pull, send
from tests.servers.ha.pair import brokers, caught_up, log_bytes, same_view, until
from tests.servers.ha.test_changes import admin, replicas, supervisor
from tests.servers.ha.test_pairs import response_of, send_many


def masters_side(one: Broker) -> MasterReplication:
    assert one.context is not None
    assert isinstance(one.context.replication, MasterReplication)
    return one.context.replication


def has_all(one: HaSupervisor, end_offset: int) -> bool:
    """Whether a broker's log ends there; it may be closed at the moment, to become something else."""
    try:
        return one.broker.context is not None and one.broker.store.confirmed_where == end_offset
    except StoreClosedError:
        return False


def test_a_second_master_is_rejected_while_the_first_is_alive(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            first = await pair.start(0, "async_master")
            with pytest.raises(AnotherMasterError, match=first.address):
                await pair.start(7, "async_master", broker_id=0)
            other = await pair.start(8, "async_master", broker_id=0, name="broker-b")
            assert (await response_of(other, send("T"))).code == 0
            assert (await response_of(first, send("T"))).code == 0
            # Nobody unregisters a master that dies: the next one finds that it does not answer.
            first._reports.name_servers = []  # type: ignore[union-attr]
            await first.close()
            again = await pair.start(7, "async_master", broker_id=0)
            assert (await response_of(again, send("T"))).code == 0

    run(main())


def test_an_old_master_steps_down_and_becomes_a_slave(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            old, new = supervisor(pair, 0, "async_master"), supervisor(pair, 1, "slave")
            async with old, new:
                await until(lambda: replicas(old) == 1)
                await send_many(old.broker, 20)
                await caught_up(old.broker, new.broker)
                with pytest.raises(NotPromotedError, match="is alive"):
                    await tool.promote(new.address)
                await tool.promote(new.address, force=True)
                # Both are alive; what the old one takes now is lost, and it says so as soon as it knows.
                await send_many(old.broker, 3)
                ours = log_bytes(old.broker.store)
                await send_many(new.broker, 5)
                await masters_side(old.broker).check_rank()
                rejected = await response_of(old.broker, send("T"))
                assert rejected.code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
                assert (await response_of(old.broker, pull("T"))).code == ResponseCode.NO_PERMISSION
                # It tells name servers nothing any more, and they would not believe it.
                await old.broker._report_again()
                clusters = await tool.clusters()
                assert clusters.brokers["broker-a"].broker_addrs[0] == new.address
                await masters_side(new.broker).check_rank()
                assert (await response_of(new.broker, send("T"))).code == 0
                await tool.demote(old.address, 2)
                await until(lambda: has_all(old, new.broker.store.max_offset))
                await same_view(new.broker, old.broker)
                (side,) = (tmp_path / "0").glob("repair-*")
                kept = b"".join(part.read_bytes() for part in sorted(side.iterdir()))
                assert ours.endswith(kept)
                assert kept

    run(main())


def test_an_old_master_that_starts_again_is_rejected(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            first, second = supervisor(pair, 0, "async_master"), supervisor(pair, 1, "slave")
            async with second:
                async with first:
                    await send_many(first.broker, 5)
                    await caught_up(first.broker, second.broker)
                await tool.promote(second.address)
                with pytest.raises(AnotherMasterError, match="brokerRole=SLAVE"):
                    await supervisor(pair, 0, "async_master").start()

    run(main())
