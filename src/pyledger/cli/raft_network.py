"""`pyledger raft node`, append, get, status, transfer, bench: members of a group and what one asks them."""

import sys
from pathlib import Path
from typing import Any

import click

from pyledger.cli.messages import text_or_base64
from pyledger.cli.network import run_client
from pyledger.cli.output import emit, report, tell, write_line
from pyledger.cli.parameters import Number, json_option
from pyledger.cli.raft_entries import entry_fields, entry_line
from pyledger.cli.rows import read_lines
from pyledger.cli.serving import (
    begin_start,
    config_option,
    log_level_option,
    log_to_stderr,
    ready_json_option,
    serve,
)
from pyledger.errors import EXIT_PROBLEM

PEERS_HELP = "Members: n0-host:port;n1-host:port;…"

group_option = click.option("--group", default="default", show_default=True, help="Name of the group.")
peers_option = click.option("--peers", required=True, help=PEERS_HELP)
timeout_option = click.option(
    "--timeout-ms", type=Number(1), default=5000, show_default=True, help="For one call."
)


@click.command("node")
@group_option
@click.option("--id", "self_id", required=True, help="The own id, one of the peers.")
@peers_option
@click.option(
    "--store",
    "store_path",
    required=True,
    type=click.Path(),
    help="Folder for that of the node, dledger-<id>.",
)
@click.option("--upstream-times", is_flag=True, help="Times that a group with Java nodes needs.")
@config_option
@log_level_option
@ready_json_option
def node(
    group: str,
    self_id: str,
    peers: str,
    store_path: str,
    upstream_times: bool,
    config_path: Path | None,
    log_level: str,
) -> None:
    """Run a member of a group until SIGTERM or SIGINT. Prints `READY raft HOST:PORT` once it answers.

    The other members may be of ours or Java's (DLedger up to 0.3, which RocketMQ embeds).
    """
    begin_start()
    from dataclasses import replace

    from pyledger.config.loader import ConfigFile
    from pyledger.config.net import NetConfig
    from pyledger.config.raft import UPSTREAM_TIMES, RaftConfig
    from pyledger.config.raft_store import RaftStoreConfig
    from pyledger.runtime.raft_server import RaftServer
    from pyledger.store.freed_memory import keep_buffers

    log_to_stderr(log_level)
    keep_buffers()
    file = ConfigFile(config_path)
    config, net = file.load(RaftConfig, "raft"), file.load(NetConfig, "net")
    store = file.load(RaftStoreConfig, "raft_store")
    if upstream_times:
        times: dict[str, Any] = UPSTREAM_TIMES
        config = replace(config, **times)
    serve("raft", lambda: RaftServer(group, self_id, peers, store_path, config=config, store=store, net=net))


@click.command("append")
@group_option
@peers_option
@timeout_option
@click.argument("bodies", nargs=-1)
@json_option
def append(group: str, peers: str, timeout_ms: int, bodies: tuple[str, ...], as_json: bool) -> None:
    """Append BODIES, or the lines of stdin, each as one entry; prints where they stand."""
    from pyledger.client.raft_client import RaftClient

    async def work() -> None:
        stdin = (line.rstrip(b"\r\n") for line in read_lines(sys.stdin.buffer))
        lines = (body.encode() for body in bodies) if bodies else stdin
        async with RaftClient(group, peers, timeout_ms=timeout_ms) as client:
            for body in lines:
                done = await client.append(body)
                if as_json:
                    emit(
                        {"index": done.index, "term": done.term, "pos": done.pos, "leaderId": done.leader_id}
                    )
                else:
                    write_line(f"{done.index} term {done.term} @{done.pos}")

    run_client(work())


@click.command("get")
@group_option
@peers_option
@timeout_option
@click.argument("index", type=Number())
@json_option
@click.pass_context
def get(ctx: click.Context, group: str, peers: str, timeout_ms: int, index: int, as_json: bool) -> None:
    """Print the committed entry at INDEX; exit 1 when there is none."""
    from pyledger.client.raft_client import RaftClient

    async def work() -> Any:
        async with RaftClient(group, peers, timeout_ms=timeout_ms) as client:
            return await client.get(index)

    entry = run_client(work())
    if entry is None:
        tell(f"no committed entry {index}")
        ctx.exit(EXIT_PROBLEM)
    elif as_json:
        emit(entry_fields(entry) | text_or_base64(entry.body))
    else:
        write_line(entry_line(entry))


@click.command("status")
@group_option
@peers_option
@json_option
def status(group: str, peers: str, as_json: bool) -> None:
    """What each member says: its leader and its term. Members that do not answer stand without."""
    from pyledger.client.raft_client import RaftClient
    from pyledger.errors import PyLedgerError, RaftRefusedError

    async def work() -> None:
        async with RaftClient(group, peers) as client:
            for member, address in client.peers.items():
                found: dict[str, Any] = {"id": member, "address": address, "leaderId": None, "term": None}
                said = "does not answer"
                try:
                    found["term"] = await client.term(member)
                    found["leaderId"] = (await client.metadata(member)).leader_id
                except RaftRefusedError as error:
                    found["problem"] = said = str(error)
                except PyLedgerError as error:
                    found["problem"] = str(error)
                if as_json:
                    emit(found)
                elif found["term"] is None:
                    write_line(f"{member} {address} {said}")
                else:
                    leads = (
                        "leads" if found["leaderId"] == member else f"follows {found['leaderId'] or 'nobody'}"
                    )
                    write_line(f"{member} {address} {leads} in term {found['term']}")

    run_client(work())


@click.command("transfer")
@group_option
@peers_option
@click.argument("to")
@json_option
def transfer(group: str, peers: str, to: str, as_json: bool) -> None:
    """Let member TO lead the group."""
    from pyledger.client.raft_client import RaftClient

    async def work() -> int:
        async with RaftClient(group, peers) as client:
            return await client.transfer(to)

    term = run_client(work())
    report(f"{to} leads in term {term}", {"leaderId": to, "term": term}, as_json=as_json)


@click.command("bench")
@group_option
@peers_option
@timeout_option
@click.option("--size", default=256, show_default=True, type=Number(), help="Bytes of a body.")
@click.option("--per", default=1, show_default=True, type=Number(1), help="Entries in a request.")
@click.option("--in-flight", default=1024, show_default=True, type=Number(1), help="Requests at once.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(min=0.1), help="How long.")
@json_option
def bench(
    group: str,
    peers: str,
    timeout_ms: int,
    size: int,
    per: int,
    in_flight: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure appends to a running group: entries a second, and how long one waits."""
    import asyncio
    import time

    from pyledger.client.raft_client import RaftClient
    from pyledger.errors import OutcomeUnknownError

    body, unknown = bytes(size), 0

    async def worker(client: Any, end: float, waits: list[float]) -> None:
        nonlocal unknown
        while (begin := time.perf_counter()) < end:
            try:
                await (client.append(body) if per == 1 else client.append_many([body] * per))
            except OutcomeUnknownError:
                unknown += per  # the leader changed meanwhile
            else:
                waits.append(time.perf_counter() - begin)

    async def work() -> list[float]:
        waits: list[float] = []
        async with RaftClient(group, peers, timeout_ms=timeout_ms) as client:
            await client.append(body)
            end = time.perf_counter() + seconds
            await asyncio.gather(*(worker(client, end, waits) for _ in range(in_flight)))
        return waits

    begin = time.perf_counter()
    waits = sorted(run_client(work()))
    taken = time.perf_counter() - begin
    found = {
        "entries": len(waits) * per,
        "unknown": unknown,
        "seconds": round(taken, 3),
        "entriesPerSecond": round(len(waits) * per / taken),
        "p50Ms": wait_ms(waits, 0.5),
        "p99Ms": wait_ms(waits, 0.99),
        "maxMs": wait_ms(waits, 1.0),
    }
    if as_json:
        emit(found)
    else:
        rate, half, most = found["entriesPerSecond"], found["p50Ms"], found["p99Ms"]
        write_line(f"{rate:,} entries/s; half of the requests within {half} ms, 99 % within {most} ms")
        if unknown:
            write_line(f"what became of {unknown} entries is not known: the leader changed")


def wait_ms(waits: list[float], share: float) -> float | None:
    """How long this share of sorted waits (s) took at most, in ms; None where there are none."""
    return round(waits[min(int(len(waits) * share), len(waits) - 1)] * 1000, 3) if waits else None


COMMANDS = (node, append, get, status, transfer, bench)
