"""How long producers are without a broker after a kill of the leader of three brokers on a DLedger log.

    python -m benchmarks.load.failover [--brokers ours|java] [--rounds 3] [--poll 30000]

Three brokers, a name server of ours, a producer of ours and RocketMQ's (5.3.3). Both send one message after
another and try none again by themselves. The broker that leads is killed with `kill -9`. Each round
prints, in ms after it:

registered  when the name server knows another broker as the master
ours        when our producer's next message is stored; it asks for routes every 30 s
java        when the Java producer's next message is stored; it asks for routes every `--poll` ms
errors      what the Java producer's messages met until then, by text
"""

import argparse
import asyncio
import json
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pyledger.client.producer.producer import AsyncProducer
from pyledger.errors import PyLedgerError
from pyledger.model.message import Message
from tests.interop.peers import Peers, RocketMQ, command
from tests.servers.broker.group_process import NAME, GroupProcesses, group_of_brokers
from tests.support.ports import free_ports

VERSION = "5.3.3"
Lines = asyncio.Queue[tuple[float, dict[str, object]]]
"""What the Java producer says, and when."""
UPSTREAM = {"heartBeatTimeIntervalMs": 2000, "minVoteIntervalMs": 300, "maxVoteIntervalMs": 1000}


class JavaGroup:
    """Three of RocketMQ's brokers, with the name server of a group of ours."""

    def __init__(self, group: GroupProcesses) -> None:
        self._group = group
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.addresses: dict[str, str] = {}

    async def start(self, one: str) -> None:
        """Start a member, and wait until it is ready."""
        folder, (port,) = self._group.folder, free_ports(1)
        settings = {
            "enableDLegerCommitLog": "true", "dLegerGroup": NAME, "dLegerPeers": self._group.peers,
            "dLegerSelfId": one, "autoCreateTopicEnable": "true",
        }  # fmt: skip
        options = [word for item in settings.items() for word in ("--set", "=".join(item))]
        where = ("--port", port, "--namesrv", self._group.name_server.address, "--store", folder / one)
        names = ("--name", NAME, "--cluster", "DLedgerCluster", "--small", "--broker-id", int(one[1:]) + 1)
        with (folder / f"{one}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command(VERSION, "Broker", *where, *names, *options),
                stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert process.stdout is not None
        while not (line := await process.stdout.readline()).startswith(b"READY"):
            assert line, (folder / f"{one}.log").read_text()[-2000:]
        self.processes[one], self.addresses[one] = process, f"127.0.0.1:{port}"

    async def kill(self, one: str) -> None:
        """`kill -9`."""
        process = self.processes.pop(one)
        process.kill()
        await process.wait()


def master_of(group: GroupProcesses) -> str | None:
    """Address of whom the name server knows as the master."""
    route = group.name_server.routes.clusters().brokers.get(NAME)
    return None if route is None else route.broker_addrs.get(0)


async def other_master(group: GroupProcesses, besides: str | None) -> str:
    """The same, when there is one other than `besides`."""
    while (address := master_of(group)) in (None, besides):
        await asyncio.sleep(0.01)
    assert address is not None
    return address


@asynccontextmanager
async def members(kind: str, group: GroupProcesses) -> AsyncIterator[tuple[object, dict[str, str]]]:
    """The running members: what starts and kills them, and their addresses."""
    if kind == "ours":
        yield group, group.addresses
        return
    java = JavaGroup(group)
    try:
        yield java, java.addresses
    finally:
        for one in list(java.processes):
            await java.kill(one)


async def send_on(producer: AsyncProducer) -> None:
    """Send until a message is stored."""
    while True:
        try:
            await producer.send(Message("T", b"ours"))
        except PyLedgerError:
            await asyncio.sleep(0.01)
        else:
            return


async def next_sent(
    lines: "asyncio.Queue[tuple[float, dict[str, object]]]", killed: float
) -> tuple[int, Counter[str]]:
    """Ms after the kill at which the Java producer's next message was stored, and what it met until then."""
    errors: Counter[str] = Counter()
    while True:
        at, line = await lines.get()
        if at < killed:
            continue
        if line["event"] == "error":
            errors[f"{line['type']}: {str(line['text'])[:90]}"] += 1
        elif line["event"] == "sent" and at - killed > 0.05 and (errors or at - killed > 0.5):
            return round(1000 * (at - killed)), errors


async def one_round(kind: str, peer: RocketMQ, poll_ms: int) -> dict[str, object]:
    """Start three, kill the one that leads."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {} if kind == "ours" else UPSTREAM
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(group_of_brokers(Path(folder), 3, **settings))
            runner, addresses = await stack.enter_async_context(members(kind, group))
            await asyncio.gather(*(runner.start(one) for one in group.ids))  # type: ignore[attr-defined]
            leader_address = await other_master(group, None)
            ours = AsyncProducer("P", group.name_server.address, send_timeout_ms=1000, retries=0)
            await send_on(await stack.enter_async_context(ours))
            lines: Lines = asyncio.Queue()
            loop = asyncio.get_running_loop()
            run = peer.start(
                "Produce", "--namesrv", group.name_server.address, "--topic", "T", "--count", 10_000_000,
                "--poll", poll_ms, "--retries", 0, "--send-timeout", 3000,
            )  # fmt: skip

            def read() -> None:
                for text in run.output:
                    if text.startswith("{"):
                        loop.call_soon_threadsafe(lines.put_nowait, (time.monotonic(), json.loads(text)))

            reading = asyncio.create_task(asyncio.to_thread(read))
            while (await lines.get())[1]["event"] != "sent":
                pass
            await asyncio.sleep(2)
            leader = next(one for one, address in addresses.items() if address == leader_address)
            killed = time.monotonic()
            if kind == "ours":
                await group.end(leader, signal.SIGKILL)
            else:
                await runner.kill(leader)  # type: ignore[attr-defined]
            await other_master(group, leader_address)
            registered = round(1000 * (time.monotonic() - killed))
            await send_on(ours)
            took = round(1000 * (time.monotonic() - killed))
            sent, errors = await asyncio.wait_for(next_sent(lines, killed), 120)
            run.output.close()
            reading.cancel()
            return {
                "registered": registered,
                "ours": took,
                "java": sent,
                "errors": dict(errors.most_common(3)),
            }


async def main() -> None:
    parser = argparse.ArgumentParser(description="Downtime of producers after a kill of the leader.")
    parser.add_argument("--brokers", choices=("ours", "java"), default="ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--poll", type=int, default=30_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(Path(folder))
        try:
            found = []
            for _ in range(chosen.rounds):
                found.append(await one_round(chosen.brokers, peers(VERSION), chosen.poll))
                print(json.dumps(found[-1]), flush=True)
            for name in ("registered", "ours", "java"):
                print(name, "median", statistics.median(one[name] for one in found), "ms")
        finally:
            peers.close()


if __name__ == "__main__":
    asyncio.run(main())
