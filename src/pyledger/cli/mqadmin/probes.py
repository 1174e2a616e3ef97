"""Latency of sends, with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/message/CheckMsgSendRTCommand.java, cluster/CLusterSendMsgRTCommand.java.
"""

import re
import time
from typing import Any

import click

from pyledger.cli.mqadmin.verb import TOPIC, Printer, moment_text, verb
from pyledger.cli.output import WrongUseError, printable
from pyledger.cli.parameters import Number
from pyledger.errors import PyLedgerError, SendError
from pyledger.model.message import Message

VERBS: dict[str, click.Command] = {}
ROW = "{brokerName:<32}  {queueId:<4}  {sent:<20}    {tookMs}"


@verb(
    "checkMsgSendRT",
    TOPIC,
    click.option(
        "-a", "--amount", type=Number(1), default=100, show_default=True, help="Number of messages."
    ),
    click.option(
        "-s", "--size", type=Number(1, 4 << 20), default=128, show_default=True, help="Body size in bytes."
    ),
    table=VERBS,
)
async def check_send_time(admin: Any, out: Printer, topic: str, amount: int, size: int) -> None:
    """Send messages to the queues in rotation and print the time of each."""
    from pyledger.client.producer.producer import AsyncProducer

    rows: list[dict[str, Any]] = []
    async with AsyncProducer("TOOLS_PRODUCER", client=admin.client) as producer:
        queues = await producer.queues(topic)
        for number in range(amount):
            queue = queues[number % len(queues)]
            begun = time.perf_counter()
            try:
                await producer.send(Message(topic, b"a" * size), queue=queue)
                sent = True
            except SendError:
                sent = False
            took_ms = round((time.perf_counter() - begun) * 1000)
            rows.append(
                {
                    "brokerName": queue.broker_name,
                    "queueId": queue.queue_id,
                    "sent": sent,
                    "tookMs": took_ms,
                }
            )
    out.table(ROW, ("#Broker Name", "#QID", "#Send Result", "#RT"), rows)
    # The first one connects, too.
    later = [row["tookMs"] for row in rows[1:]]
    average_ms = sum(later) / len(later) if later else rows[0]["tookMs"]
    out.say(f"Avg RT: {average_ms:.2f}")


BROKER_ROW = "{cluster:<24}  {brokerName:<24}  {averageMs:<8}  {sent:<16}  {failed}"
BROKER_HEADS = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")


@verb(
    "clusterRT",
    click.option(
        "-a", "--amount", type=Number(1), default=50, show_default=True, help="Messages per broker."
    ),
    click.option(
        "-s", "--size", type=Number(1, 4 << 20), default=128, show_default=True, help="Body size in bytes."
    ),
    click.option("-c", "--cluster", help="Only this cluster."),
    click.option(
        "-p", "--print", "as_log", type=bool, default=False, metavar="true|false", help="Print as log lines."
    ),
    click.option(
        "-m", "--machine-room", default="noname", show_default=True, help="Name to print in log lines."
    ),
    click.option("-i", "--interval", type=Number(0), default=10, show_default=True, help="Pause in seconds."),
    click.option("--rounds", type=Number(1), help="Stop after N rounds. [default: Ctrl-C]"),
    table=VERBS,
)
async def cluster_times(
    admin: Any,
    out: Printer,
    amount: int,
    size: int,
    cluster: str | None,
    as_log: bool,
    machine_room: str,
    interval: int,
    rounds: int | None,
) -> None:
    """Send messages to the topic of each broker's name and print the average time."""
    import asyncio
    from itertools import count

    from pyledger.client.producer.producer import AsyncProducer

    if not as_log:
        out.text(BROKER_ROW.format(**dict(zip(re.findall(r"{(\w+)", BROKER_ROW), BROKER_HEADS, strict=True))))
    async with AsyncProducer("TOOLS_PRODUCER", client=admin.client) as producer:
        for number in count(1):
            known = await admin.clusters()
            chosen = [
                (one.cluster, name)
                for name, one in sorted(known.brokers.items())
                if cluster is None or one.cluster == cluster.strip()
            ]
            if not chosen:
                raise WrongUseError(f"no broker is registered in the cluster {cluster}")
            for where, broker in chosen:
                row = {"cluster": where, "brokerName": broker, **await timed(producer, broker, amount, size)}
                rounded = {**row, "averageMs": f"{row['averageMs']:.2f}"}
                line = BROKER_ROW.format(**rounded)
                if as_log:
                    moment = moment_text(int(time.time() * 1000))
                    line = f"{moment}|{machine_room}|{where}|{broker}|{row['averageMs']:.0f}"
                out.show(row, printable(line))
            if number == rounds:
                return
            await asyncio.sleep(interval)


async def timed(producer: Any, topic: str, amount: int, size: int) -> dict[str, float]:
    """Time sends of `size` bytes to a topic; the first, which also connects, does not count."""
    took_ms, sent = [], 0
    for _ in range(amount):
        begun = time.perf_counter()
        try:
            await producer.send(Message(topic, b"a" * size))
            sent += 1
        except PyLedgerError:
            pass
        took_ms.append((time.perf_counter() - begun) * 1000)
    counted = took_ms[1:] or took_ms
    return {"averageMs": sum(counted) / len(counted), "sent": sent, "failed": amount - sent}
