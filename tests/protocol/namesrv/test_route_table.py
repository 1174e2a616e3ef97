"""Stories in testdata about the route table of a name server."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest

from pyledger.config.fields import build
from pyledger.config.namesrv import NamesrvConfig
from pyledger.model.route import (
    BrokerIdentity,
    MinBrokerIdChange,
    QueueMapping,
    QueueRoute,
    Registered,
    Registration,
    TopicRoute,
)
from pyledger.model.topic import DataVersion, Permission
from pyledger.protocol.namesrv import route_rules
from pyledger.protocol.namesrv.kv_table import KVTable
from pyledger.protocol.namesrv.route_table import RouteTable
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
FLAGS = {"true": True, "false": False}
PERMS = {name: Permission(number) for name, number in (("rw", 6), ("r", 4), ("w", 2), ("-", 0))}


def listed(parts: Iterable[list[str]]) -> str:
    return " ".join(sorted(chain.from_iterable(parts)))


class Story:
    """A table, a clock, and the connections of brokers."""

    def __init__(self) -> None:
        self.table = RouteTable()
        self.now_ms = 0
        self.channels: dict[str, object] = {}
        self.known: dict[str, BrokerIdentity] = {}

    def run_step(self, step: datadriven.Step) -> str:
        if "at" in step.named:
            self.now_ms = step.integer("at")
        answer: str = getattr(self, step.command.replace("-", "_"))(step)
        return answer or "ok"

    def config(self, step: datadriven.Step) -> str:
        given = {name: value for name, value in step.named.items() if name != "at"}
        self.table = RouteTable(build(NamesrvConfig, given))
        return ""

    def channel(self, name: str) -> object:
        return self.channels.setdefault(name, object())

    def identity(self, step: datadriven.Step) -> BrokerIdentity:
        """`broker-a:1@host` with the cluster in `cluster=`."""
        name, _, rest = step.words[0].partition(":")
        broker_id, _, addr = rest.partition("@")
        return BrokerIdentity(step.named.get("cluster", "C"), name, addr, int(broker_id))

    def register(self, step: datadriven.Step) -> str:
        """A line of input for each topic, `name read/write perm [flag]`, or `mapping topic broker`."""
        broker = self.identity(step)
        topics, mappings = {}, {}
        for line in step.input.splitlines():
            name, *rest = line.split()
            if name == "mapping":
                mappings[rest[0]] = QueueMapping(rest[0], rest[1], total_queues=8, epoch=1)
                continue
            read, _, write = rest[0].partition("/")
            flag = int(rest[2]) if len(rest) > 2 else 0
            topics[name] = QueueRoute(broker.broker_name, int(read), int(write), PERMS[rest[1]], flag)
        acting = step.named.get("acting")
        registration = Registration(
            broker,
            topics,
            self.version(step),
            ha_server_addr=step.named.get("ha"),
            queue_mappings=mappings,
            filter_servers=tuple(step.items("filters")) if "filters" in step.named else None,
            heartbeat_timeout_ms=step.integer("timeout") if "timeout" in step.named else None,
            enable_acting_master=FLAGS[acting] if acting else None,
            zone_name=step.named.get("zone"),
        )
        answer = self.table.register(
            registration, self.channel(step.named.get("channel", broker.broker_addr)), self.now_ms
        )
        return self.answer(answer)

    def version(self, step: datadriven.Step) -> DataVersion:
        """`version=state.counter`."""
        state, _, counter = step.named.get("version", "0.1").partition(".")
        return DataVersion(counter=int(counter), state_version=int(state), timestamp_ms=1000)

    def answer(self, answer: Registered | None) -> str:
        if answer is None:
            return "refused"
        master = f" master={answer.master_addr} ha={answer.ha_server_addr}" if answer.master_addr else ""
        return "\n".join([f"registered{master}", *map(self.notice, answer.notices)])

    def notice(self, change: MinBrokerIdChange) -> str:
        smallest = f"min {change.min_broker_id}={change.min_broker_addr}"
        about = f"offline={change.offline_broker_addr} ha={change.ha_broker_addr}"
        return f"tell {' '.join(change.targets)}: {smallest} {about}"

    def unregister(self, step: datadriven.Step) -> str:
        return "queued" if self.table.unregister(self.identity(step)) else "queue is full"

    def remove(self, _: datadriven.Step) -> str:
        return "\n".join(map(self.notice, self.table.remove_queued())) or "removed"

    def close(self, step: datadriven.Step) -> str:
        self.table.close_channel(self.channel(step.words[0]))
        return self.remove(step)

    def expire(self, step: datadriven.Step) -> str:
        expired = self.table.expire(self.now_ms)
        closed = [f"close {broker.broker_addr}: silent for {broker.silent_ms} ms" for broker in expired]
        return "\n".join([*closed, self.remove(step)]) if closed else "none"

    def heartbeat(self, step: datadriven.Step) -> str:
        self.table.refresh(step.named.get("cluster", "C"), step.words[0], self.now_ms)
        return ""

    def query_version(self, step: datadriven.Step) -> str:
        place = step.named.get("cluster", "C"), step.words[0]
        changed = self.table.is_changed(*place, self.version(step))
        self.table.refresh(*place, self.now_ms)
        ours = self.table.data_version(*place)
        known = f"{ours.state_version}.{ours.counter}" if ours else "none"
        return f"changed={str(changed).lower()} known={known}"

    def route(self, step: datadriven.Step) -> str:
        found = self.table.route(step.words[0])
        if found is None:
            return "no route"
        if "zone" in step.named:
            found = route_rules.in_zone(found, step.named["zone"])
        return self.route_text(found)

    def route_text(self, route: TopicRoute) -> str:
        lines = []
        for brokers in route.brokers:
            addrs = " ".join(f"{i}={a}" for i, a in brokers.broker_addrs.items()) or "no address"
            lines.append(f"{brokers.broker_name} ({brokers.cluster}): {addrs}")
        for queues in route.queues:
            perm = next(word for word, number in PERMS.items() if number == queues.permission)
            lines.append(f"{queues.broker_name}: {queues.read_queue_count}/{queues.write_queue_count} {perm}")
        lines += [f"filters of {addr}: {' '.join(found)}" for addr, found in route.filter_servers.items()]
        if route.queue_mappings:
            lines += [f"mapping of {name}: epoch {m.epoch}" for name, m in route.queue_mappings.items()]
        return "\n".join(lines) or "nothing"

    def topics(self, _: datadriven.Step) -> str:
        return listed(self.table.topics()) or "none"

    def topics_of(self, step: datadriven.Step) -> str:
        return listed(self.table.topics_of_cluster(step.words[0])) or "none"

    def unit_topics(self, step: datadriven.Step) -> str:
        kinds = {name: FLAGS[value] for name, value in step.named.items()}
        return listed(self.table.unit_topics(**kinds)) or "none"

    def system_topics(self, _: datadriven.Step) -> str:
        names, addr = self.table.system_topics()
        return f"{' '.join(names)} at {addr}"

    def members(self, step: datadriven.Step) -> str:
        return " ".join(f"{i}={a}" for i, a in self.table.member_group(step.words[0]).items()) or "none"

    def wipe(self, step: datadriven.Step) -> str:
        return f"{self.table.wipe_write_perm(step.words[0])} topics"

    def add(self, step: datadriven.Step) -> str:
        return f"{self.table.add_write_perm(step.words[0])} topics"

    def register_topic(self, step: datadriven.Step) -> str:
        queues = [QueueRoute(name, 4, 4, PERMS["rw"]) for name in step.words[1:]]
        return "added" if self.table.register_topic(step.words[0], queues) else "not added"

    def delete_topic(self, step: datadriven.Step) -> str:
        self.table.delete_topic(step.words[0], step.named.get("cluster"))
        return ""

    def show(self, _: datadriven.Step) -> str:
        return self.table.describe(self.now_ms)


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_route_table_story(story: Path, rewrite: bool) -> None:
    datadriven.run(story, Story().run_step, rewrite=rewrite)


def test_clusters_names_every_broker_once() -> None:
    table = RouteTable()
    for number in (2, 1):
        broker = BrokerIdentity("C", f"b{number}", f"h{number}", 0)
        table.register(Registration(broker, {}), object(), 0)
    found = table.clusters()
    assert found.clusters == {"C": ("b1", "b2")}
    assert [list(one.broker_addrs.items()) for one in found.brokers.values()] == [[(0, "h1")], [(0, "h2")]]


def test_kv_table_namespace_that_was_emptied_differs_from_one_never_written() -> None:
    table = KVTable()
    assert table.table("N") is None
    assert table.get("N", "k") is None
    table.put("N", "k", "v")
    assert table.get("N", "k") == "v"
    table.delete("N", "k")
    table.delete("M", "k")
    assert table.table("N") == {}
    assert KVTable(table.namespaces()).namespaces() == {"N": {}}
