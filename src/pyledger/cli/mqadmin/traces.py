"""Message traces with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/message/QueryMsgTraceByIdSubCommand.java, client/.../trace/TraceView.java.
"""

from typing import Any

import click

from pyledger.cli.mqadmin.verb import Printer, moment_text, verb
from pyledger.cli.parameters import Number
from pyledger.model import names
from pyledger.wire.remoting.bodies.trace import EndTrace, SendTrace, decode_traces

VERBS: dict[str, click.Command] = {}
ROW = "{type:<10} {group:<20} {clientHost:<20} {timestamp:<20} {costMs:<10} {status:<10}"


@verb(
    "queryMsgTraceById",
    click.option("-i", "--msgId", "msg_id", required=True, help="Unique key of the message."),
    click.option(
        "-t",
        "--traceTopic",
        "topic",
        default=names.TRACE_TOPIC,
        show_default=True,
        help="Topic of the traces.",
    ),
    click.option("-b", "--beginTimestamp", "begin", type=Number(0), default=0, metavar="MS"),
    click.option("-e", "--endTimestamp", "end", type=Number(0), default=(1 << 63) - 1, metavar="MS"),
    click.option("-c", "--maxNum", "count_max", type=Number(1), default=64, show_default=True),
    table=VERBS,
)
async def query_trace(
    admin: Any, out: Printer, msg_id: str, topic: str, begin: int, end: int, count_max: int
) -> None:
    """Show the producer and the consumers of a message, from its trace."""
    found = await admin.query(topic, msg_id.strip(), since=begin, until=end + 1, limit=count_max)
    sent: list[dict[str, Any]] = []
    consumed: dict[str, list[dict[str, Any]]] = {}
    for message in found:
        host = message.born_host.rpartition(":")[0]
        for trace in decode_traces(message.body.decode("utf-8", "replace")):
            if trace.msg_id != msg_id.strip():
                continue
            if isinstance(trace, SendTrace):
                sent.append(trace_row("Pub", trace, host))
            elif isinstance(trace, EndTrace):
                consumed.setdefault(trace.group, []).append(trace_row("Sub", trace, host))
    for row in sent:
        print_rows(out, [row], "#ProducerGroup", "#SendTime")
    for _, rows in sorted(consumed.items()):
        print_rows(out, rows, "#ConsumerGroup", "#ConsumerTime")


def trace_row(kind: str, trace: SendTrace | EndTrace, host: str) -> dict[str, Any]:
    """Return one trace record as a row."""
    return {
        "type": kind,
        "group": trace.group,
        "clientHost": host,
        "timestamp": trace.time_ms,
        "costMs": trace.took_ms,
        "status": "success" if trace.succeeded else "failed",
    }


def print_rows(out: Printer, rows: list[dict[str, Any]], group: str, moment: str) -> None:
    """Print the records of one producer or one group."""
    heads = ("#Type", group, "#ClientHost", moment, "#CostTimes", "#Status")
    out.table(ROW, heads, rows, timestamp=moment_text, costMs=lambda took_ms: f"{took_ms}ms")
    out.text("")
