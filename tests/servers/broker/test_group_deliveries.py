"""What a leader had under way when it was killed its successor ends: delays, timers, transactions, pops."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pyledger.client.producer.producer import AsyncProducer
from pyledger.client.producer.send_result import TransactionState
from pyledger.client.producer.transaction_producer import AsyncTransactionProducer
from pyledger.config.client import ClientConfig
from pyledger.errors import PyLedgerError
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.wire.record.record import ReceivedMessage
from tests.net.peers import RawPeer, raw
from tests.servers.broker.group_process import GroupProcesses, group_of_brokers
from tests.servers.broker.peers import make_request
from tests.servers.broker.test_group import consume
from tests.servers.broker.test_pop import named, pop, popped

pytestmark = pytest.mark.timeout(300)

QUICK = ClientConfig(poll_name_server_interval_ms=100, heartbeat_interval_ms=100)
SETTINGS = {
    "timerPrecisionMs": 100,
    "transactionCheckInterval": 100,
    "transactionTimeOut": 1000,
    "transactionOpBatchInterval": 50,
    "transactionCheckMax": 10_000,
}
HIDDEN_MS = 5_000


async def send_all(producer: AsyncProducer, messages: list[Message]) -> set[bytes]:
    """Send each until it is acknowledged; the bodies."""
    for message in messages:
        while True:
            try:
                await producer.send(message)
                break
            except PyLedgerError:
                await asyncio.sleep(0.05)
    return {bytes(message.body) for message in messages}


def waiting(prefix: str, seconds: int) -> list[Message]:
    """Messages that are delivered after a time, by level and by timer."""
    levels = {1: 1, 5: 2}
    by_level = [Message("T", f"{prefix} level {n}".encode(), delay_level=levels[seconds]) for n in range(10)]
    timed = {"TIMER_DELAY_SEC": str(seconds)}
    by_timer = [Message("T", f"{prefix} timer {n}".encode(), properties=timed) for n in range(10)]
    return by_level + by_timer


def test_delayed_messages_come_whoever_leads(tmp_path: Path) -> None:
    """Killed while some are delivered and others wait, and again once those of the first leader have come."""

    async def main() -> None:
        async with group_of_brokers(tmp_path, **SETTINGS) as group:
            await asyncio.gather(*(group.start(one) for one in group.ids))
            address = group.name_server.address
            async with AsyncProducer("P", address, client=QUICK) as producer:
                early = await send_all(producer, waiting("early", 1))
                late = await send_all(producer, waiting("late", 5))
                await consume(address, early)
                first = await group.lead()
                await group.end(first, signal.SIGKILL)
                await group.lead(besides=first)
                late |= await send_all(producer, waiting("new", 1))
                await group.start(first)
                await consume(address, early | late)
                second = await group.lead()
                await group.end(second, signal.SIGKILL)
                await group.lead(besides=second)
                found = await consume(address, early | late)
            assert set(found) == early | late

    asyncio.run(main())


def test_transactions_end_whoever_leads(tmp_path: Path) -> None:
    """Ended under the first leader, and open when it is killed: the next one asks, and each ends as told."""
    outcomes = {
        b"commit": TransactionState.COMMIT,
        b"rollback": TransactionState.ROLLBACK,
        b"asked": TransactionState.UNKNOWN,
        b"asked in vain": TransactionState.UNKNOWN,
    }
    asked_for: Counter[bytes] = Counter()

    def check(message: ReceivedMessage) -> TransactionState:
        kind, _, _ = message.body.partition(b":")
        asked_for[kind] += 1
        if kind == b"asked" and not killed.is_set():
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if kind in {b"asked", b"commit"} else TransactionState.ROLLBACK

    killed = asyncio.Event()

    async def main() -> None:
        async with group_of_brokers(tmp_path, **SETTINGS) as group:
            await asyncio.gather(*(group.start(one) for one in group.ids))
            address = group.name_server.address
            async with AsyncTransactionProducer("P", address, check=check, client=QUICK) as producer:
                await send_all(producer, [Message("T", b"plain")])
                for number in range(5):
                    for kind, outcome in outcomes.items():
                        body = b"%s:%d" % (kind, number)
                        await in_transaction(producer, body, outcome)
                leader = await group.lead()
                await group.end(leader, signal.SIGKILL)
                killed.set()
                await group.lead(besides=leader)
                wanted = {b"%s:%d" % (kind, n) for kind in (b"commit", b"asked") for n in range(5)}
                found = await consume(address, {*wanted, b"plain"})
            assert set(found) == {*wanted, b"plain"}
            assert asked_for[b"asked"] >= 5

    asyncio.run(asyncio.wait_for(main(), 100))


async def in_transaction(producer: AsyncTransactionProducer, body: bytes, state: TransactionState) -> None:
    while True:
        try:
            await producer.send_in_transaction(Message("T", body), lambda *_: state)
            return
        except PyLedgerError:
            await asyncio.sleep(0.05)


def test_popped_messages_come_again_whoever_leads(tmp_path: Path) -> None:
    """Hidden when the leader is killed: each comes again, also if its first broker alone knew of the pop.

    What was acknowledged may come again, too: how far a group has popped is copied every few seconds.
    """
    bodies = {b"%d" % number for number in range(60)}

    async def main() -> None:
        async with group_of_brokers(tmp_path) as group:
            await asyncio.gather(*(group.start(one) for one in group.ids))
            async with AsyncProducer("P", group.name_server.address, client=QUICK) as producer:
                await send_all(producer, [Message("T", body) for body in sorted(bodies)])
            leader = await group.lead()
            done: set[bytes] = set()
            async with peer(group, leader) as client:
                hidden = dict(popped(await client.request(pop(maxMsgNums=20, invisibleTime=HIDDEN_MS))))
                for body, handle in list(hidden.items())[::2]:
                    if await acknowledged(client, handle):
                        done.add(body)
            await group.end(leader, signal.SIGKILL)
            leader = await group.lead(besides=leader)
            while done < bodies:
                leader = await group.lead()
                try:
                    async with peer(group, leader) as client:
                        found = popped(await client.request(pop(maxMsgNums=32, invisibleTime=HIDDEN_MS)))
                        done |= {body for body, handle in found if await acknowledged(client, handle)}
                except (PyLedgerError, OSError, EOFError):
                    await asyncio.sleep(0.05)  # on a slow machine the leader may change at any time

    asyncio.run(main())


@asynccontextmanager
async def peer(group: GroupProcesses, one: str) -> AsyncIterator[RawPeer]:
    async with raw(int(group.addresses[one].rpartition(":")[2])) as connection:
        yield connection


async def acknowledged(client: RawPeer, handle: str) -> bool:
    answer = await client.request(make_request(RequestCode.ACK_MESSAGE, **named(handle)))
    return answer.code == ResponseCode.SUCCESS
