"""`pyledger dledger node`, append, get, status, transfer, bench: members of a group and requests to them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pyledger.cli.dledger.entries import entry_fields, entry_line
from pyledger.cli.messages import text_or_base64
from pyledger.cli.network import run_client
from pyledger.cli.output import (
    CannotReachError,
    ProblemFoundError,
    WrongUseError,
    emit,
    emit_done,
    printable,
    report,
    write_done,
    write_line,
)
from pyledger.cli.parameters import NonEmptyPath, Number, json_option
from pyledger.cli.servers.serving import (
    begin_start,
    config_option,
    keep_buffers,
    log_ignored,
    log_to_stderr,
    serve,
    server_options,
)
from pyledger.cli.store.rows import read_lines

PEERS_HELP = "Members: n0-host:port;n1-host:port;…"

group_option = click.option("--group", default="default", show_default=True, help="Name of the group.")
peers_option = click.option("--peers", required=True, help=PEERS_HELP)
timeout_option = click.option(
    "--timeout-ms", type=Number(1), default=5000, show_default=True, help="For one call."
)


@click.command("node")
@group_option
@click.option("--id", "self_id", required=True, help="Id of this member, one of the peers.")
@peers_option
@click.option(
    "--store",
    "store_path",
    required=True,
    type=NonEmptyPath(),
    help="Parent of the node's folder, dledger-<id>.",
)
@click.option("--upstream-times", is_flag=True, help="Use the times that a group with Java nodes needs.")
@config_option
@server_options
def node(
    group: str,
    self_id: str,
    peers: str,
    store_path: str,
    upstream_times: bool,
    config_path: Path | None,
    log_level: str,
) -> None:
    """Run a member of a group until SIGTERM or SIGINT. Prints `READY dledger HOST:PORT` once it answers.

    The other members may be of ours or Java's (DLedger up to 0.3, which RocketMQ embeds).
    """
    begin_start()

    from pyledger.config.dledger import UPSTREAM_TIMES, DLedgerConfig
    from pyledger.config.dledger_store import DLedgerStoreConfig
    from pyledger.config.loader import ConfigFile
    from pyledger.config.net import NetConfig
    from pyledger.servers.dledger.server import DLedgerServer

    log_to_stderr(log_level)
    keep_buffers()
    file = ConfigFile(config_path)
    times = UPSTREAM_TIMES if upstream_times else None
    config, net = file.load(DLedgerConfig, "dledger", times), file.load(NetConfig, "net")
    store = file.load(DLedgerStoreConfig, "dledger_store")
    log_ignored(file.ignored({}), "dledger")
    serve(
        "dledger",
        lambda: DLedgerServer(group, self_id, peers, store_path, config=config, store=store, net=net),
    )


@click.command("append")
@group_option
@peers_option
@timeout_option
@click.argument("bodies", nargs=-1)
@json_option
def append(group: str, peers: str, timeout_ms: int, bodies: tuple[str, ...], as_json: bool) -> None:
    """Append BODIES, or the lines of stdin, each as one entry; print their indexes, terms and offsets."""
    from pyledger.client.dledger import DLedgerClient

    async def work() -> None:
        stdin = (line.rstrip(b"\r\n") for line in read_lines(sys.stdin.buffer))
        lines = (body.encode() for body in bodies) if bodies else stdin
        async with DLedgerClient(group, peers, timeout_ms=timeout_ms) as client:
            for body in lines:
                done = await client.append(body)
                if as_json:
                    emit_done(
                        {"index": done.index, "term": done.term, "pos": done.pos, "leaderId": done.leader_id}
                    )
                else:
                    write_done(f"{done.index} term {done.term} @{done.pos}")

    run_client(work())


@click.command("get")
@group_option
@peers_option
@timeout_option
@click.argument("index", type=Number())
@json_option
def get(group: str, peers: str, timeout_ms: int, index: int, as_json: bool) -> None:
    """Print the committed entry at INDEX; exit 1 when there is none."""
    from pyledger.client.dledger import DLedgerClient

    async def work() -> Any:
        async with DLedgerClient(group, peers, timeout_ms=timeout_ms) as client:
            return await client.get(index)

    entry = run_client(work())
    if entry is None:
        raise ProblemFoundError(f"no committed entry {index}")
    if as_json:
        emit(entry_fields(entry) | text_or_base64(entry.body))
    else:
        write_line(entry_line(entry))


@click.command("status")
@group_option
@peers_option
@json_option
def status(group: str, peers: str, as_json: bool) -> None:
    """Print the leader, term and log of each member, and why it cannot vote.

    Members that do not answer are listed without values; Java's report fewer. Exit 1 when there is no leader;
    the last line then states why.
    """
    from pyledger.client.dledger import DLedgerClient

    async def work() -> list[dict[str, Any]]:
        async with DLedgerClient(group, peers) as client:
            return [
                await _request_status(client, member, address) for member, address in client.peers.items()
            ]

    members = run_client(work())
    for found in members:
        if as_json:
            emit(found)
        else:
            write_line(printable(_member_line(found)))
    if not any(found["leaderId"] == found["id"] for found in members):
        raise ProblemFoundError("; ".join(_why_no_leader(members)))


async def _request_status(client: Any, member: str, address: str) -> dict[str, Any]:
    """Return the state that a member reports, as JSON fields; `rejected` when it answered with an error."""
    from pyledger.errors import DLedgerRejectedError, PyLedgerError

    found: dict[str, Any] = {"id": member, "address": address, "leaderId": None, "term": None}
    try:
        answer = await client.metadata(member)
        # Our members report their term in the status, even while a full disk stops all else.
        found["term"] = answer.status.term if answer.status else await client.term(member)
    except PyLedgerError as error:
        return found | {"problem": str(error), "rejected": isinstance(error, DLedgerRejectedError)}
    found["leaderId"] = answer.leader_id
    if (one := answer.status) is not None:
        found |= {
            "role": one.role,
            "vote": one.vote,
            "begin": one.begin_index,
            "end": one.end_index,
            "endTerm": one.end_term,
            "committed": one.committed_index,
            "cannotVote": one.cannot_vote,
            "diskFull": one.disk_full,
        }
    return found


def _member_line(found: Mapping[str, Any]) -> str:
    """Return the state of a member as one line of text."""
    head = f"{found['id']} {found['address']}"
    if found["term"] is None:
        return f"{head} {found['problem'] if found['rejected'] else 'does not answer'}"
    leads = "leads" if found["leaderId"] == found["id"] else f"follows {found['leaderId'] or 'no leader'}"
    line = f"{head} {leads} in term {found['term']}"
    if "end" in found:
        last = "nothing" if found["end"] < 0 else f"{found['end']} of term {found['endTerm']}"
        vote = found["vote"] or "no member"
        line += f"; its log ends with {last}, committed {found['committed']}, voted for {vote}"
    if found.get("diskFull"):
        line += "; its disk is full"
    return line + (f"; cannot vote: {found['cannotVote']}" if found.get("cannotVote") else "")


def _why_no_leader(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the reasons why a group has no leader."""
    needed = len(members) // 2 + 1
    silent = [found["id"] for found in members if found["term"] is None]
    barred = [found["id"] for found in members if found.get("cannotVote")]
    able = len(members) - len(silent) - len(barred)
    yield f"no leader: it needs {needed} votes of {len(members)} members, and {able} can vote"
    if silent:
        yield f"start {', '.join(silent)}, or find out why they do not answer"
    if barred:
        yield f"{', '.join(barred)} cannot vote before a leader has sent the entries they lost"
    if able >= needed:
        yield "an election takes a few seconds; members that cannot reach one another elect no leader"
    elif barred and not silent:
        yield "if no member has those entries, stop it and run `pyledger dledger repair FOLDER --accept-loss`"


def highest_term(folder: str, group: str, peers: str) -> int:
    """Return the highest term of the other members.

    Raises:
        CannotReachError: one of them does not answer; this member may have voted for it.
    """
    from pyledger.client.dledger import DLedgerClient
    from pyledger.errors import PyLedgerError

    self_id = Path(folder).resolve().name.removeprefix("dledger-")

    async def work() -> int:
        async with DLedgerClient(group, peers) as client:
            if self_id not in client.peers:
                raise WrongUseError(f"{self_id}, the member of this folder, is not among the peers")
            highest = 0
            for member in client.peers:
                if member != self_id:
                    try:
                        highest = max(highest, await client.term(member))
                    except PyLedgerError as error:
                        problem = f"{member} did not report its term ({error})"
                        remedy = "all other members must, as this one may have voted for any of them"
                        raise CannotReachError(f"{problem}; {remedy}") from error
            return highest

    return int(run_client(work()))


@click.command("transfer")
@group_option
@peers_option
@click.argument("to")
@json_option
def transfer(group: str, peers: str, to: str, as_json: bool) -> None:
    """Let member TO lead the group."""
    from pyledger.client.dledger import DLedgerClient

    async def work() -> int:
        async with DLedgerClient(group, peers) as client:
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
    """Measure appends to a running group: entries per second, and latency."""
    import asyncio
    import time

    from pyledger.client.dledger import DLedgerClient
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
        async with DLedgerClient(group, peers, timeout_ms=timeout_ms) as client:
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
            write_line(f"the outcome of {unknown} entries is not known: the leader changed")


def wait_ms(waits: list[float], share: float) -> float | None:
    """Return the quantile `share` of sorted waits (s), in ms; None without any."""
    return round(waits[min(int(len(waits) * share), len(waits) - 1)] * 1000, 3) if waits else None


COMMANDS = (node, append, get, status, transfer, bench)
