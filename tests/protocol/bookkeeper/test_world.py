"""Writers, recoveries and bookies together, over many seeds: nothing confirmed is lost, one end for all."""

import pytest

from pyledger.protocol.bookkeeper.results import Result
from tests.protocol.bookkeeper.world import Client, World

SHAPES = [(3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (3, 3, 3), (3, 3, 1)]


def payload_of(entry_id: int) -> bytes:
    return b"%d" % entry_id * (1 + entry_id % 4)


def write_some(world: World, client: Client, entries: int) -> None:
    for _ in range(entries):
        client.machine.add(payload_of(client.machine.last_add_pushed + 1), 0)
        client.follow()
        for _ in range(world.random.randrange(8)):
            world.step()


def disturb(world: World) -> None:
    """At most as many bookies as may fail are down."""
    down = [name for name, bookie in world.bookies.items() if not bookie.up]
    if len(down) < world.metadata.ack_quorum - 1:
        world.crash(world.random.choice([name for name in sorted(world.bookies) if name not in down]))
    else:
        world.start_all()


def close_by_recovery(world: World) -> list[Client]:
    """Recoveries, some at once, until one ends well."""
    ended: list[Client] = []
    for attempt in range(60):
        world.loss = 0.0 if attempt > 20 else world.loss
        together = [world.recovery() for _ in range(world.random.choice((1, 1, 2)))]
        world.settle()
        ended += [client for client in together if client.done is Result.OK]
        if ended:
            return ended
        world.start_all()
    raise AssertionError(f"no recovery ended well: {world.metadata}")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(60))
def test_a_ledger_that_its_writer_leaves(seed: int, shape: tuple[int, int, int]) -> None:
    world = World(seed, bookies=7, ensemble=shape[0], write=shape[1], ack=shape[2])
    writer = world.writer()
    for _ in range(world.random.randrange(1, 8)):
        write_some(world, writer, world.random.randrange(6))
        disturb(world)
    # The writer does not stop: it is fenced.
    recoveries = []
    for _ in range(3):
        recoveries.append(world.recovery())
        write_some(world, writer, world.random.randrange(4))
        disturb(world)
        for _ in range(world.random.randrange(40)):
            world.step()
        write_some(world, writer, 2)
    recoveries += close_by_recovery(world)
    write_some(world, writer, 3)
    world.settle()
    check(world, writer, recoveries)


@pytest.mark.parametrize("seed", range(60))
def test_a_ledger_that_its_writer_closes(seed: int) -> None:
    world = World(seed, bookies=6)
    writer = world.writer()
    write_some(world, writer, 12)
    writer.machine.close()
    writer.follow()
    world.settle()
    if writer.done is not Result.OK:
        return
    assert world.metadata.closed
    check(world, writer, [world.recovery()])


def check(world: World, writer: Client, recoveries: list[Client]) -> None:
    world.start_all()
    metadata = world.metadata
    assert metadata.closed
    assert writer.confirmed == list(range(len(writer.confirmed))), "confirmed out of order"
    assert len(writer.confirmed) <= metadata.last_entry_id + 1, "a confirmed entry was cut off"
    for client in recoveries:
        if client.done is Result.OK:
            assert client.machine.metadata == metadata, "two openers disagree"
    entries = [world.read(entry_id) for entry_id in range(metadata.last_entry_id + 1)]
    assert [entry and entry.payload for entry in entries] == [payload_of(at) for at in range(len(entries))]
    assert metadata.length == sum(len(payload_of(at)) for at in range(len(entries)))
