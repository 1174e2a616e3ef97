"""A consumer sees at a slave what it sees at the master, whatever the slave began with."""

from pathlib import Path

import pytest

from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import Broker
from pyledger.store.cold.archive import archive
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.servers.broker.peers import make_request, pull, send
from tests.servers.ha.consumer_view import consumer_view, differences
from tests.servers.ha.link import linked
from tests.servers.ha.pair import SMALL, brokers, caught_up, port_of, replication, same_view, until
from tests.servers.ha.test_links import service_of
from tests.servers.ha.test_pairs import response_of, send_many

FILE_BYTES = SMALL["mapped_file_size_bytes"]
BODY_BYTES = 5_000


def fill(folder: Path, count: int = 400, *, deleted_files: int = 0) -> None:
    """Give a master's folder a log of several files, the first of them deleted, as by retention."""
    with StoreEngine.open(folder, **SMALL, delete_files_max=1) as store:
        for number in range(3):
            store.put(Message("Rare", b"early", queue_id=number, keys=f"early{number}"))
        for number in range(count):
            store.put(Message("T", bytes(BODY_BYTES), queue_id=number % 4, keys=f"k{number}", tags="A"))
        assert store.queues()  # dispatched: what is not may not be deleted
        for _ in range(deleted_files):
            assert store.delete_expired(immediate=True)


async def know_topics(master: Broker) -> None:
    """Have the topics whose messages were put past the broker."""
    for topic in ("T", "Rare"):
        assert (await response_of(master, send(topic, bytes(BODY_BYTES), queue_id=3))).code == 0


async def commit(one: Broker, topic: str, offsets: dict[int, int]) -> None:
    """A group has consumed so far."""
    for queue_id, offset in offsets.items():
        fields = {"consumerGroup": "G", "topic": topic, "queueId": queue_id, "commitOffset": offset}
        assert (await response_of(one, make_request(RequestCode.UPDATE_CONSUMER_OFFSET, **fields))).code == 0


async def pulled(one: Broker, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
    """Code, and where to go on (units), that a consumer hears."""
    answer: RemotingCommand = await response_of(one, pull(topic, queue_id, offset))
    return answer.code, int(answer.ext_fields["nextBeginOffset"])


@pytest.mark.parametrize("deleted_files", [0, 1])
def test_an_empty_slave_of_a_log_with_several_files_serves_what_it_has(
    run: Run, tmp_path: Path, deleted_files: int
) -> None:
    """Its log begins with the master's last file, and so do its queues and its index."""
    fill(tmp_path / "0", deleted_files=deleted_files)

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await know_topics(master)
            await commit(master, "T", {0: 90, 1: 99, 3: 5})
            slave = await pair.start(1, "slave")
            seen = await same_view(master, slave)
            assert seen.log_start == master.store.max_offset // FILE_BYTES * FILE_BYTES > 0
            assert (seen.queues["T", 3].min_offset > 0, seen.queues["T", 3].max_offset) == (True, 101)
            assert any(key.startswith("k") for _, key in seen.found_by_key)
            assert seen.group_offsets["T", "G", 1] == 99
            # And what comes, over the beginning of the next file too.
            await send_many(master, 300, BODY_BYTES)
            await same_view(master, slave)
            await slave.close()
            slave = await pair.start(1, "slave")
            assert (await same_view(master, slave)).log_start == seen.log_start

    run(main())


def test_a_slave_moves_no_consumer_to_another_offset(run: Run, tmp_path: Path) -> None:
    """What its log does not have its master may: neither behind its end nor before its beginning."""
    fill(tmp_path / "0")

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await know_topics(master)
            # All of two queues is in files that the slave does not have.
            await commit(master, "Rare", {0: 1, 1: 1})
            slave = await pair.start(1, "slave")
            seen = await same_view(master, slave)
            assert ("Rare", 0) not in seen.queues
            assert seen.group_offsets["Rare", "G", 0] == 1
            await master.close()
            await until(lambda: slave.context is not None and not slave.context.broker_state.master_alive)
            least, end = seen.queues["T", 3].min_offset, seen.queues["T", 3].max_offset
            again, nothing = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND
            assert await pulled(slave, "T", 3, end) == (nothing, end)
            assert await pulled(slave, "T", 3, end + 7) == (again, end + 7)
            assert await pulled(slave, "T", 3, least - 1) == (again, least - 1)
            assert await pulled(slave, "Rare", 0, 1) == (again, 1)
            # Started again it knows no more, and what groups have consumed is kept.
            await slave.close()
            slave = await pair.start(1, "slave")
            assert not differences(seen, await consumer_view(port_of(slave)))
            # As master it numbers new messages of such a queue from 0, so the group begins there.
            await slave.close()
            slave = await pair.start(1, "async_master", broker_id=0)
            promoted = await consumer_view(port_of(slave))
            assert promoted.queues == seen.queues
            assert promoted.found_by_key == seen.found_by_key
            assert promoted.group_offsets["Rare", "G", 0] == 0
            assert await pulled(slave, "T", 3, least - 1) == (ResponseCode.PULL_OFFSET_MOVED, least)

    run(main())


@pytest.mark.parametrize("carried", [0, 12, 40, 3_000, BODY_BYTES * 2, FILE_BYTES // 2, FILE_BYTES + 3_000])
def test_a_slave_is_started_again_at_any_stage(run: Run, tmp_path: Path, carried: int) -> None:
    """It had so many bytes of its first connection, and comes back without its master, then with it."""
    fill(tmp_path / "0")

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await know_topics(master)
            async with linked(service_of(master).port) as link:
                link.cuts = [lambda _: carried]
                once = {"master_address": link.address, "reconnect_interval_ms": 3_600_000}
                slave = await pair.start(1, "slave", ha=once)
                await send_many(master, 300, BODY_BYTES)
                await until(lambda: link.connections == 1 and bool(replication(slave).ha_client.problem))
                await slave.close()
                alone = await pair.start(1, "slave", ha={"master_address": "127.0.0.1:1"})
                had = await consumer_view(port_of(alone))
                assert all(view.messages for view in had.queues.values())
                await alone.close()
            slave = await pair.start(1, "slave")
            await same_view(master, slave)

    run(main())


def test_a_slave_whose_next_bytes_are_deleted_at_the_master_reports_it(run: Run, tmp_path: Path) -> None:
    """It goes on to serve what it has; emptied, it follows again."""

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", store={"delete_files_max": 100})
            await send_many(master, 100, BODY_BYTES)
            slave = await pair.start(1, "slave")
            before = await same_view(master, slave)
            await slave.close()
            await send_many(master, 600, BODY_BYTES)
            assert master.store.delete_expired(immediate=True)
            assert master.store.min_offset > before.log_start + FILE_BYTES
            slave = await pair.start(1, "slave")
            await until(lambda: "empty the slave" in replication(slave).ha_client.problem)
            assert (await consumer_view(port_of(slave))).queues == before.queues
            await slave.close()
            (tmp_path / "1").rename(tmp_path / "kept")
            slave = await pair.start(1, "slave")
            await same_view(master, slave)

    run(main())


def test_a_slave_takes_what_its_master_has_archived(run: Run, tmp_path: Path) -> None:
    """Packed files come as they were written, to a slave that lacks them; an empty one begins behind them."""

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await send_many(master, 20, BODY_BYTES)
            slave = await pair.start(1, "slave")
            await same_view(master, slave)
            await slave.close()
            await send_many(master, 900, BODY_BYTES)
            await master.close()
            assert len(list(archive(tmp_path / "0", older_than_ms=1 << 60))) >= 3
            master = await pair.start(0, "async_master")
            slave = await pair.start(1, "slave")
            assert (await same_view(master, slave)).log_start == 0
            empty = await pair.start(2, "slave")
            assert (await same_view(master, empty)).log_start > 0

    run(main())


def test_a_slave_serves_after_its_masters_death_and_as_master_what_it_served(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await send_many(master, 300, BODY_BYTES)
            slave = await pair.start(1, "slave")
            await send_many(master, 60)
            await commit(master, "T", {0: 70, 1: 3, 2: 0})
            seen = await same_view(master, slave)
            await caught_up(master, slave)
            await master.close()
            assert not differences(seen, await consumer_view(port_of(slave)))
            await slave.close()
            successor = await pair.start(1, "async_master", broker_id=0)
            assert not differences(seen, await consumer_view(port_of(successor)))
            await send_many(successor, 8)
            after = await consumer_view(port_of(successor))
            assert after.queues["T", 0].max_offset == seen.queues["T", 0].max_offset + 2

    run(main())
