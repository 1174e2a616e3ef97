"""Sources that are away for a while: queues that are not seen keep their offsets, and nothing comes twice."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyledger import stream_reader
from pyspark_pyledger.offsets import Positions
from pyspark_pyledger.options import parse_read_options
from pyspark_pyledger.schema import schema_of
from pyspark_pyledger.stream_reader import StreamReader

from pyledger.client.blocking.admin import Admin
from pyledger.config.namesrv import NamesrvConfig
from pyledger.errors import (
    DataLostError,
    QueueUnavailableError,
    RemotingError,
    StoreIOError,
    StoreNotFoundError,
)
from pyledger.model.message import Message
from pyledger.model.topic import TopicConfig
from pyledger.servers.broker.server import Broker
from pyledger.servers.namesrv.server import NameServer
from tests.servers.ha.pair import Pair, brokers, caught_up, until
from tests.spark.test_offsets import open_stream, rows, write

TOPIC = "orders"
LOSSY = pytest.mark.parametrize("lossy", ["true", "false"], ids="failOnDataLoss={}".format)


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "RETRY_INTERVAL_S", 0.01)


def trigger(stream: StreamReader, start: Positions) -> tuple[Positions, int]:
    """Where one trigger ends, and how many rows it has."""
    end = stream.latestOffset(start, ReadAllAvailable())
    return end, len(rows(stream, start, end))


# Each takes something away from a folder and gives what puts it back.


def move_away(path: Path) -> Callable[[], object]:
    aside = path.parent.parent / f"{path.name}.aside"
    path.rename(aside)

    def put_back() -> None:
        shutil.rmtree(path, ignore_errors=True)
        aside.rename(path)

    return put_back


def take_folder(store: Path) -> Callable[[], object]:
    return move_away(store)


def leave_mount_point(store: Path) -> Callable[[], object]:
    put_back = move_away(store)
    store.mkdir()
    return put_back


def leave_empty_log(store: Path) -> Callable[[], object]:
    """The log has a file system of its own."""
    put_back = move_away(store / "commitlog")
    (store / "commitlog").mkdir()
    return put_back


def take_log(store: Path) -> Callable[[], object]:
    return move_away(store / "commitlog")


def make_unreadable(store: Path) -> Callable[[], object]:
    """A loop of links: also the superuser cannot follow it."""
    put_back = move_away(store / "commitlog")
    (store / "commitlog").symlink_to(store / "commitlog")

    def remove_link_first() -> None:
        (store / "commitlog").unlink()
        put_back()

    return remove_link_first


AWAYS = [take_folder, leave_mount_point, leave_empty_log, take_log, make_unreadable]


@LOSSY
@pytest.mark.parametrize("restarts", [False, True], ids=["followed", "restarted"])
@pytest.mark.parametrize("take", AWAYS, ids=lambda take: take.__name__)
def test_a_folder_that_is_away_keeps_its_offsets(
    tmp_path: Path, take: Callable[[Path], Callable[[], object]], restarts: bool, lossy: str
) -> None:
    both = tmp_path / "both"
    for name in ("a", "b"):
        write(both / name, 20)
    stream = open_stream(both, startingOffsets="earliest", failOnDataLoss=lossy)
    at, count = trigger(stream, stream.initialOffset())
    assert count == 40
    put_back = take(both / "b")
    write(both / "a", 6)
    if restarts:
        stream = open_stream(both, failOnDataLoss=lossy)
    away, count = trigger(stream, at)
    assert count == 6
    assert away[TOPIC]["b:0"] == at[TOPIC]["b:0"] == 10
    assert trigger(stream, away) == (away, 0)
    put_back()
    write(both / "b", 2)
    if restarts:
        stream = open_stream(both, failOnDataLoss=lossy)
    back, count = trigger(stream, away)
    assert count == 2
    assert back[TOPIC] == {"a:0": 13, "a:1": 13, "b:0": 11, "b:1": 11}


@LOSSY
@pytest.mark.parametrize("take", AWAYS, ids=lambda take: take.__name__)
def test_the_only_folder_is_waited_for_by_a_query_and_named_to_a_new_one(
    tmp_path: Path, take: Callable[[Path], Callable[[], object]], lossy: str
) -> None:
    store = tmp_path / "home" / "store"
    write(store, 20)
    stream = open_stream(store, startingOffsets="earliest", failOnDataLoss=lossy)
    at, count = trigger(stream, stream.initialOffset())
    assert count == 20
    put_back = take(store)
    assert trigger(stream, at) == (at, 0)
    again = open_stream(store, failOnDataLoss=lossy)
    if take is leave_empty_log:
        assert trigger(again, at) == (at, 0)
    else:
        with pytest.raises((StoreNotFoundError, StoreIOError)):
            again.latestOffset(at, ReadAllAvailable())
        with pytest.raises((StoreNotFoundError, StoreIOError)):
            open_stream(store).initialOffset()
    put_back()
    write(store, 4)
    for reader in (stream, again):
        assert trigger(reader, at) == ({TOPIC: {"0": 12, "1": 12}}, 4)


def test_one_of_several_paths_keeps_its_offsets(tmp_path: Path) -> None:
    first, second = tmp_path / "x" / "first", tmp_path / "x" / "second"
    for path in (first, second):
        write(path, 4)
    stream = open_stream(first, second, first, startingOffsets="earliest")
    at, count = trigger(stream, stream.initialOffset())
    assert count == 12
    for path, left in ((first, 2), (second, 4)):
        put_back = move_away(path)
        for reader in (stream, open_stream(first, second, first)):
            assert trigger(reader, at) == (at, 0)
            with pytest.raises(StoreNotFoundError):
                open_stream(first, second, first).initialOffset()
        put_back()
        assert left
    write(first, 2)
    assert trigger(stream, at)[1] == 4


@LOSSY
def test_a_logged_trigger_waits_for_its_folder_and_passes_nothing_over(tmp_path: Path, lossy: str) -> None:
    both = tmp_path / "both"
    for name in ("a", "b"):
        write(both / name, 20)
    stream = open_stream(both, startingOffsets="earliest", failOnDataLoss=lossy)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    put_back = move_away(both / "b")
    for reader in (stream, open_stream(both, failOnDataLoss=lossy)):
        with pytest.raises(QueueUnavailableError, match=f"{TOPIC}/0 of b: .*nothing is skipped"):
            reader.partitions(start, end)
    put_back()
    assert len(rows(open_stream(both, failOnDataLoss=lossy), start, end)) == 40


def test_a_queue_without_files_of_queues_is_not_called_lost(tmp_path: Path) -> None:
    """Its last messages are gone by retention, and only the files of its queue know its offsets."""
    store = tmp_path / "store"
    write(store, 20, topics=("old",))
    write(store, 400)
    stream = open_stream(store, startingOffsets="earliest")
    at, _ = trigger(stream, stream.initialOffset())
    min((store / "commitlog").iterdir()).unlink()
    put_back = move_away(store / "consumequeue")
    for reader in (stream, open_stream(store)):
        assert trigger(reader, at) == (at, 0)
    put_back()
    assert trigger(open_stream(store), at) == (at, 0)


@LOSSY
def test_a_queue_that_its_folder_has_no_more_is_lost(tmp_path: Path, lossy: str) -> None:
    store = tmp_path / "store"
    write(store, 20, topics=("old",))
    write(store, 400)
    at = open_stream(store).initialOffset()
    min((store / "commitlog").iterdir()).unlink()
    shutil.rmtree(store / "consumequeue" / "old")
    reader = open_stream(store, failOnDataLoss=lossy)
    if lossy == "true":
        with pytest.raises(DataLostError, match="old/0: is gone, and was read up to 10"):
            reader.latestOffset(at, ReadAllAvailable())
    else:
        assert trigger(reader, at) == (at, 0)


# Brokers.


def broker_stream(address: str, lossy: str = "true") -> StreamReader:
    options = parse_read_options(
        {"namesrv": address, "topic": TOPIC, "startingOffsets": "earliest", "failOnDataLoss": lossy}
    )
    return StreamReader(schema_of(("topic", "queueId", "queueOffset")), options)


def put(broker: Broker, count: int) -> None:
    for number in range(count):
        broker.store.put(Message(TOPIC, b"%d" % number, queue_id=number % 4))


async def topic_at(pair: Pair) -> Broker:
    """A master that has registered a topic of four queues, with eight messages."""
    broker = await pair.start(0, "async_master")
    await asyncio.to_thread(create_topic, pair.name_server.address, broker.address)
    put(broker, 8)
    return broker


def create_topic(name_server: str, broker: str) -> None:
    with Admin(name_server) as admin:
        admin.create_topic(TopicConfig(TOPIC, 4, 4), address=broker)


@LOSSY
def test_a_name_server_that_starts_anew_is_no_loss(tmp_path: Path, lossy: str) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            broker = await topic_at(pair)
            address = pair.name_server.address
            stream = broker_stream(address, lossy)
            at, count = await asyncio.to_thread(lambda: trigger(stream, stream.initialOffset()))
            assert count == 8
            await pair.name_server.close()
            put(broker, 4)
            at, count = await asyncio.to_thread(trigger, stream, at)
            assert count == 4, "the last known route serves, for tasks too"
            again = broker_stream(address, lossy)
            with pytest.raises(RemotingError):
                await asyncio.to_thread(again.latestOffset, at, ReadAllAvailable())
            # It knows no broker before the next one registers.
            empty = NameServer(NamesrvConfig(port=int(address.rpartition(":")[2])))
            await empty.start()
            try:
                put(broker, 4)
                assert await asyncio.to_thread(trigger, again, at) == (at, 0)
                end, count = await asyncio.to_thread(trigger, stream, at)
                assert count == 4
                with pytest.raises(QueueUnavailableError):
                    await asyncio.to_thread(again.partitions, at, end)
                assert broker._reports is not None
                assert await broker._reports.report_all() == 1
                assert (await asyncio.to_thread(trigger, again, at)) == (end, 4)
            finally:
                await empty.close()
            for one in (stream, again):
                await asyncio.to_thread(one.stop)

    asyncio.run(main())


@LOSSY
def test_a_broker_that_restarts_keeps_its_offsets(tmp_path: Path, lossy: str) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            broker = await topic_at(pair)
            address = pair.name_server.address
            stream = broker_stream(address, lossy)
            at, _ = await asyncio.to_thread(lambda: trigger(stream, stream.initialOffset()))
            await broker.close()
            assert await asyncio.to_thread(trigger, stream, at) == (at, 0)
            broker = await pair.start(0, "async_master")  # on another port
            put(broker, 4)
            again = broker_stream(address, lossy)
            for reader in (stream, again):
                assert (await asyncio.to_thread(trigger, reader, at))[1] == 4
                await asyncio.to_thread(reader.stop)

    asyncio.run(main())


@LOSSY
def test_a_slave_that_is_behind_is_no_loss_of_a_stream(tmp_path: Path, lossy: str) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await topic_at(pair)
            address = pair.name_server.address
            slave = await pair.start(1, "slave")
            await caught_up(master, slave)
            assert slave.context is not None
            topics = slave.context.tables.topics.topics
            await until(lambda: TOPIC in topics)
            await slave.close()
            put(master, 8)
            stream = broker_stream(address, lossy)
            at, count = await asyncio.to_thread(lambda: trigger(stream, stream.initialOffset()))
            assert count == 16
            await master.close()
            await pair.start(1, "slave")
            for reader in (stream, broker_stream(address, lossy)):
                assert await asyncio.to_thread(trigger, reader, at) == (at, 0)
                ranges = await asyncio.to_thread(reader._tail.refresh)
                assert {queue.max_offset for queue in ranges.values()} == {2}, "the slave answers"
                await asyncio.to_thread(reader.stop)

    asyncio.run(main())
