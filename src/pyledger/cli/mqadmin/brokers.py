"""Brokers with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/cluster/ClusterListSubCommand.java, command/broker/*.java.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from pyledger.cli.mqadmin.verb import BROKER, CLUSTER, Printer, chosen_brokers, verb
from pyledger.cli.output import WrongUseError
from pyledger.cli.parameters import Number
from pyledger.config import properties
from pyledger.errors import RemotingError
from pyledger.model.remoting_codes import RequestCode

VERBS: dict[str, click.Command] = {}
HOUR_MS = 3_600_000


def number(table: Mapping[str, str], name: str, place: int = 0) -> float:
    """Return one number of a broker's value; 0 if it is missing."""
    try:
        return float(table.get(name, "").split()[place])
    except (ValueError, IndexError):
        return 0.0


def load_row(place: Mapping[str, Any], table: Mapping[str, str], now_ms: int) -> dict[str, Any]:
    """A broker with its load."""
    earliest_ms = number(table, "earliestMessageTimeStamp")
    given = "getTransferredTps" if "getTransferredTps" in table else "getTransferedTps"
    return {
        **place,
        "version": table.get("brokerVersionDesc", ""),
        "inTps": number(table, "putTps"),
        "outTps": number(table, given),
        "timerProgress": int(number(table, "timerReadBehind")),
        "pageCacheLockMs": int(number(table, "pageCacheLockTimeMills")),
        "hours": (now_ms - earliest_ms) / HOUR_MS if earliest_ms > 0 else 0.0,
        "space": number(table, "commitLogDiskRatio"),
        "active": table.get("brokerActive", "false") == "true",
    }


def load_texts(row: Mapping[str, Any], table: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that upstream does not print as plain numbers."""

    def waiting(pool: str) -> str:
        size, head = f"{pool}ThreadPoolQueueSize", f"{pool}ThreadPoolQueueHeadWaitTimeMills"
        return f"{int(number(table, size))},{int(number(table, head))}ms"

    rates = ", ".join(f"{number(table, name):.1f}" for name in ("timerEnqueueTps", "timerDequeueTps"))
    congested = number(table, "timerCongestNum") / 10_000
    lag = f"{row['timerProgress']}-{int(number(table, 'timerOffsetBehind'))}"
    return {
        "inTps": f"{row['inTps']:.2f}({waiting('send')})",
        "outTps": f"{row['outTps']:.2f}({waiting('pull')}|{waiting('litePull')})",
        "timerProgress": f"{lag}({congested:.1f}w, {rates})",
        "hours": f"{row['hours']:.2f}",
        "space": f"{row['space']:.4f}",
    }


def total_row(place: Mapping[str, Any], table: Mapping[str, str]) -> dict[str, Any]:
    """A broker with the number of messages written and read."""
    totals: dict[str, int] = {}
    for word, name in (("in", "msgPutTotal"), ("out", "msgGetTotal")):
        yesterday, morning, now = (
            int(number(table, name + part)) for part in ("YesterdayMorning", "TodayMorning", "TodayNow")
        )
        totals |= {f"{word}TotalYest": morning - yesterday, f"{word}TotalToday": now - morning}
    return {
        "cluster": place["cluster"],
        "brokerName": place["brokerName"],
        "inTotalYest": totals["inTotalYest"],
        "outTotalYest": totals["outTotalYest"],
        "inTotalToday": totals["inTotalToday"],
        "outTotalToday": totals["outTotalToday"],
    }


LOADS = (
    "{cluster:<22}  {brokerName:<22}  {brokerId:<4}  {address:<22} {version:<16}  {inTps:>16}  {outTps:>30}  "
    "{timerProgress:<22}  {pageCacheLockMs:>11}  {hours:<12}  {space:<8}  {active:>10}"
)
LOAD_NAMES = (
    "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)",
    "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED",
)  # fmt: skip
TOTALS = (
    "{cluster:<16}  {brokerName:<32} {inTotalYest:>14} {outTotalYest:>14} {inTotalToday:>14} "
    "{outTotalToday:>14}"
)
TOTAL_NAMES = (
    "#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday",
)  # fmt: skip


@verb(
    "clusterList",
    click.option("-m", "--moreStats", "more", is_flag=True, help="Numbers of messages written and read."),
    click.option("-i", "--interval", "interval_s", type=Number(1), help="Repeat after N seconds."),
    click.option("-c", "--clusterName", "cluster", help="Only this cluster."),
    table=VERBS,
)
async def cluster_list(
    admin: Any, out: Printer, more: bool, interval_s: int | None, cluster: str | None
) -> None:
    """List all brokers with their load."""
    while True:
        await print_brokers(admin, out, more, cluster)
        if interval_s is None:
            return
        await asyncio.sleep(interval_s)
        out.text("")


async def print_brokers(admin: Any, out: Printer, more: bool, cluster: str | None) -> None:
    """Return one row per broker."""
    import time

    known = await admin.clusters()
    if cluster is not None and cluster not in known.clusters:
        raise WrongUseError(f"no cluster {cluster!r}; known: {', '.join(sorted(known.clusters)) or 'none'}")
    rows = []
    for name in sorted(known.clusters) if cluster is None else (cluster,):
        for broker_name in sorted(known.clusters[name]):
            for broker_id, address in sorted(known.brokers[broker_name].broker_addrs.items()):
                place = {
                    "cluster": name,
                    "brokerName": broker_name,
                    "brokerId": broker_id,
                    "address": address,
                }
                try:
                    table = await admin.broker_status(address)
                except RemotingError:
                    table = {}
                if more:
                    rows.append(total_row(place, table))
                    continue
                row = load_row(place, table, time.time_ns() // 1_000_000)
                rows.append(row if out.as_json else {**row, **load_texts(row, table)})
    out.table(TOTALS if more else LOADS, TOTAL_NAMES if more else LOAD_NAMES, rows)


@verb("brokerStatus", BROKER, CLUSTER, table=VERBS)
async def broker_status(admin: Any, out: Printer, broker: str | None, cluster: str | None) -> None:
    """Show the status of a broker."""
    for address in await chosen_brokers(admin, broker, cluster):
        table = dict(sorted((await admin.broker_status(address)).items()))
        if out.as_json:
            out.done("", broker=address, **table)
            continue
        for name, value in table.items():
            out.say(f"{name:<32}: {value}" if broker else f"{address:<24} {name:<32}: {value}")


@verb("getBrokerConfig", BROKER, CLUSTER, table=VERBS)
async def get_broker_config(admin: Any, out: Printer, broker: str | None, cluster: str | None) -> None:
    """Show the settings of a broker."""
    for address in await chosen_brokers(admin, broker, cluster):
        answer = await admin.request(address, RequestCode.GET_BROKER_CONFIG)
        print_settings(out, address, str(answer.body, "utf-8", "replace"))


def print_settings(out: Printer, address: str, text: str) -> None:
    """Print settings that came as a properties file."""
    found = dict(sorted(properties.parse(text).items()))
    if out.as_json:
        out.done("", server=address, **found)
        return
    out.say(f"============{address}============")
    for name, value in found.items():
        out.say(f"{name:<50}=  {value}")
    out.text("")


def properties_text(key: str, value: str) -> bytes:
    """Encode one setting as servers expect it."""
    return f"{key.strip()}={value.strip()}\n".encode()


@verb(
    "updateBrokerConfig",
    BROKER,
    CLUSTER,
    click.option("-a", "--updateAllBroker", "all_brokers", help="With -c: include slaves."),
    click.option("-k", "--key", required=True, help="Name of the setting."),
    click.option("-v", "--value", required=True, help="Its value."),
    table=VERBS,
)
async def update_broker_config(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    all_brokers: str | None,
    key: str,
    value: str,
) -> None:
    """Change a setting of a running broker. The change is not saved."""
    targets: tuple[str, ...] = await chosen_brokers(admin, broker, cluster)
    if all_brokers and cluster and not broker:
        known = await admin.clusters()
        of_cluster = [known.brokers[name].broker_addrs for name in known.clusters[cluster]]
        targets = tuple(sorted(address for addresses in of_cluster for address in addresses.values()))
    for address in targets:
        await admin.request(address, RequestCode.UPDATE_BROKER_CONFIG, body=properties_text(key, value))
        out.done(f"update broker config success, {address}", broker=address, key=key, value=value)


def cleaning(name: str, code: RequestCode, what: str) -> None:
    """Make a command that starts a cleanup at brokers."""

    async def clean(admin: Any, out: Printer, broker: str | None, cluster: str | None) -> None:
        targets = (broker,) if broker else await admin.master_addresses(cluster)
        for address in targets:
            await admin.request(address, code)
        out.done("success", brokers=targets)

    clean.__doc__ = what
    verb(name, BROKER, CLUSTER, table=VERBS)(clean)


cleaning(
    "cleanExpiredCQ",
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "Delete consume queue files whose messages are deleted.",
)
cleaning("cleanUnusedTopic", RequestCode.CLEAN_UNUSED_TOPIC, "Delete the queues of unused topics.")
cleaning("deleteExpiredCommitLog", RequestCode.DELETE_EXPIRED_COMMITLOG, "Delete expired log files.")
