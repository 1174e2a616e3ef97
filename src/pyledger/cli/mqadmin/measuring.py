"""How long brokers take, in the words of `mqadmin`.

Source: RocketMQ tools/.../command/message/CheckMsgSendRTCommand.java.
"""

from typing import Any

import click

from pyledger.cli.mqadmin.verb import TOPIC, Printer, verb
from pyledger.errors import SendError
from pyledger.message import Message

VERBS: dict[str, click.Command] = {}
ROW = "{brokerName:<32}  {queueId:<4}  {sent:<20}    {tookMs}"


@verb(
    "checkMsgSendRT",
    TOPIC,
    click.option(
        "-a", "--amount", type=click.IntRange(1), default=100, show_default=True, help="So many messages."
    ),
    click.option(
        "-s", "--size", type=click.IntRange(1, 4 << 20), default=128, show_default=True, help="Bytes of each."
    ),
    table=VERBS,
)
async def check_send_time(admin: Any, out: Printer, topic: str, amount: int, size: int) -> None:
    """Send messages to the queues in turn, and tell how long each took."""
    import time

    from pyledger.client.producer import AsyncProducer

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
