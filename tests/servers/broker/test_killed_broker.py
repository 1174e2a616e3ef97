"""kill -9 of a broker that runs: plain messages, transactions, timer messages, pops; each message counted."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.wire.fastjson import parse
from pyledger.wire.record.record import decode_records
from pyledger.wire.remoting.command import encode_frame
from tests.cli.command_line import ENVIRONMENT
from tests.net.peers import RawPeer
from tests.servers.broker.peers import make_request, send
from tests.servers.broker.process import broker_process
from tests.servers.broker.test_pop import named, pop, popped
from tests.servers.broker.test_timers import timed
from tests.servers.broker.test_transactions import COMMIT, ROLLBACK, become_producer, end, half
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.timeout(300)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition of another process holds; the test's own limit ends it otherwise."""
    while not condition():
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("flush", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_smoke_in_small(tmp_path: Path, flush: str) -> None:
    count = os.environ.get("PYLEDGER_SMOKE_MESSAGES", "20000")
    found = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "kill_broker.py"), "--messages", count, "--flush", flush],
        capture_output=True, text=True, env={**ENVIRONMENT, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert "lost 0;" in found.stdout


def test_transactions_have_their_ends(tmp_path: Path) -> None:
    """Ended before the kill: as they ended. Open: their producer is asked, and none is forgotten.

    A producer may be asked again about what it ended just before the kill, for that is noted a little later.
    """
    kinds = {b"commit": COMMIT, b"rollback": ROLLBACK, b"open": COMMIT}
    bodies = {kind: [b"%s %d" % (kind, number) for number in range(10)] for kind in kinds}
    settings = {
        "transactionCheckInterval": 100,
        "transactionTimeOut": 2000,
        "transactionOpBatchInterval": 50,
        "transactionCheckMax": 10_000,
    }

    async def begin(client: RawPeer) -> None:
        now_ms = time.time_ns() // 1_000_000
        for kind, how in kinds.items():
            for body in bodies[kind]:
                place = await half(client, body, now_ms)
                if kind != b"open":
                    assert (await client.request(end(place, how))).code == 0

    async def answer_questions(client: RawPeer) -> set[bytes]:
        """Tell how transactions end, until all open ones have ended; the bodies that were asked for."""
        found: set[bytes] = set()
        while not found >= set(bodies[b"open"]):
            question = await client.receive()
            if question.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            (record,) = decode_records(question.body)
            found.add(record.body)
            fields = question.ext_fields
            place = {name: fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
            how = kinds[record.body.split()[0]]
            await client.send(encode_frame(end(place, how, fromTransactionCheck="true")))
        return found

    async def main() -> None:
        with broker_process(tmp_path, **settings) as one:
            async with one.peer() as client:
                await begin(client)
            one.kill()
            one.start()
            assert Counter(one.bodies("T")) == Counter(bodies[b"commit"])
            async with one.peer() as client:
                await become_producer(client)
                asked_again = await answer_questions(client)
                wanted = set(bodies[b"commit"] + bodies[b"open"])
                await eventually(lambda: set(one.bodies("T")) >= wanted)
            one.kill()
            one.start()
            found = Counter(one.bodies("T"))
            assert set(found) == wanted
            assert {body for body, times in found.items() if times > 1} <= asked_again

    asyncio.run(main())


def test_timer_messages_are_delivered(tmp_path: Path) -> None:
    """Killed while some are delivered and some wait: all come; twice only what had just been delivered."""
    bodies = [b"%d" % number for number in range(60)]

    async def main() -> None:
        with broker_process(tmp_path, timerPrecisionMs=100) as one:
            async with one.peer() as client:
                for number, body in enumerate(bodies):
                    delay_ms = 300 if number % 2 else 4000
                    assert (await client.request(timed(body, delay_ms))).code == 0
            await eventually(lambda: len(one.bodies("T")) >= 10)
            one.kill()
            delivered = set(one.bodies("T"))
            one.start()
            await eventually(lambda: set(one.bodies("T")) >= set(bodies))
            found = Counter(one.bodies("T"))
            assert set(found) == set(bodies)
            assert {body for body, times in found.items() if times > 1} <= delivered

    asyncio.run(main())


def test_pops_are_known(tmp_path: Path) -> None:
    """Acknowledged: never again. Hidden: not before their time, then once. Waiting: as if nothing was."""
    bodies = [b"%d" % number for number in range(60)]
    hidden_ms = 4000

    async def take(client: RawPeer, count: int) -> dict[bytes, str]:
        return dict(popped(await client.request(pop(maxMsgNums=count, invisibleTime=hidden_ms))))

    async def done(client: RawPeer, handle: str) -> None:
        answer = await client.request(make_request(RequestCode.ACK_MESSAGE, **named(handle)))
        assert answer.code == ResponseCode.SUCCESS

    async def main() -> None:
        with broker_process(tmp_path) as one:
            async with one.peer() as client:
                for number, body in enumerate(bodies):
                    assert (await client.request(send("T", body, queue_id=number % 4))).code == 0
                first = {**await take(client, 20), **await take(client, 20)}
                acknowledged = set(list(first)[::2])
                for body in acknowledged:
                    await done(client, first[body])
                await settled(tmp_path, 40)
            one.kill()
            one.start()
            seen: Counter[bytes] = Counter()
            async with one.peer() as client:
                # One that was hidden before the kill can be acknowledged after it.
                late = next(body for body in first if body not in acknowledged)
                await done(client, first[late])
                while seen.total() < len(bodies) - len(acknowledged) - 1:
                    for body, handle in (await take(client, 32)).items():
                        seen[body] += 1
                        await done(client, handle)
                assert seen == Counter(set(bodies) - acknowledged - {late})
                # Those that were hidden and came again did so from the topic of their retries.
                await settled(tmp_path, len(bodies) + len(first) - len(acknowledged) - 1)
                one.kill()
                one.start()
            async with one.peer() as client:
                assert await take(client, 32) == {}

    async def settled(folder: Path, count: int) -> None:
        """Wait until offsets that were written contain those of so many pops."""
        file = folder / "store" / "config" / "consumerOffset.json"

        def written() -> int:
            if not file.exists():
                return 0
            table: dict[str, dict[str, int]] = parse(file.read_text())["offsetTable"]
            return sum(sum(table[name].values()) for name in table if name.endswith("@G"))

        await eventually(lambda: written() >= count)

    asyncio.run(main())
