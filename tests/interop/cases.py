"""What clients of RocketMQ do with a cluster, whoever made it; every message is counted."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.java import Line
from tests.interop.peers import RocketMQ

SETTLE_MS = 300
"""What must not come has so long to come."""
TIMEOUT_S = 120


@dataclass(frozen=True)
class Place:
    """A cluster, a topic of it that nobody has used, and Java clients of one version."""

    java: RocketMQ
    namesrv: str
    topic: str

    def produce(self, count: int, *options: object) -> list[Line]:
        """Send m-0, m-1 … to the topic."""
        where = ("--namesrv", self.namesrv, "--topic", self.topic)
        return self.java.run("Produce", *where, "--count", count, *options)

    def group(self, count: int, *options: object) -> tuple[object, ...]:
        """Arguments of a consumer that waits for so many messages."""
        where = ("--namesrv", self.namesrv, "--topic", self.topic, "--group", f"G{self.topic}")
        return (*where, "--expect", count, "--timeout", TIMEOUT_S, "--linger", SETTLE_MS, *options)

    def consume(self, count: int, *options: object) -> list[Line]:
        """Consume so many messages, and give others the time to come, too."""
        return self.java.run("Consume", *self.group(count, *options))

    def run(self, program: str, *options: object) -> list[Line]:
        """Any other program of the kit."""
        return self.java.run(program, "--namesrv", self.namesrv, "--topic", self.topic, *options)


Case = Callable[[Place], None]


def bodies(lines: list[Line], event: str = "message") -> Counter[str]:
    """What came, and how often."""
    return Counter(line["body"] for line in lines if line["event"] == event)


def once(count: int, prefix: str = "m") -> Counter[str]:
    """Each message of `Produce`, once."""
    return Counter(f"{prefix}-{number}" for number in range(count))


def sends(mode: str) -> Case:
    """Messages sent in one way all arrive."""

    def case(place: Place) -> None:
        place.produce(20, "--mode", mode)
        assert bodies(place.consume(20)) == once(20)

    return case


def reads(mode: str) -> Case:
    """A consumer that asks gets all."""

    def case(place: Place) -> None:
        place.produce(20)
        assert bodies(place.consume(20, "--mode", mode)) == once(20)

    return case


def large_bodies(place: Place) -> None:
    """Compressed by the producer, whole at the consumer."""
    place.produce(3, "--size", 100_000, "--prefix", "big")
    lines = place.consume(3)
    assert [line["size"] for line in lines if line["event"] == "message"] == [100_000] * 3


def tags_choose(place: Place) -> None:
    place.produce(12, "--tags", "A,B,C")
    lines = place.consume(8, "--filter", "A || C")
    assert bodies(lines) == Counter(f"m-{number}" for number in range(12) if number % 3 != 1)


def sql_chooses(place: Place) -> None:
    place.produce(12, "--property", "n=%i")
    lines = place.consume(5, "--sql", "n BETWEEN 3 AND 7")
    assert bodies(lines) == Counter(f"m-{number}" for number in range(3, 8))


def two_members_share(place: Place) -> None:
    place.produce(40)
    consumer = place.java.start("Consume", *place.group(80, "--instances", 2, "--balanced"))
    consumer.until("ready")
    place.produce(40, "--prefix", "n")
    # What is on its way while queues change hands may come to both.
    assert set(bodies(consumer.end())) == {*once(40), *once(40, "n")}


def broadcast_reaches_both(place: Place) -> None:
    place.produce(10)
    lines = place.consume(10, "--broadcast", "--instances", 2)
    assert bodies(lines) == once(10) + once(10)


def orderly_keeps_order(place: Place) -> None:
    place.produce(40, "--mode", "orderly")
    lines = place.consume(40, "--mode", "orderly")
    assert bodies(lines) == once(40)
    numbers: dict[int, list[int]] = defaultdict(list)
    for line in lines:
        if line["event"] == "message":
            numbers[line["queue"]].append(int(line["body"].removeprefix("m-")))
    assert all(found == sorted(found) for found in numbers.values())


def group_goes_on(place: Place) -> None:
    place.produce(10)
    assert bodies(place.consume(10)) == once(10)
    place.produce(5, "--prefix", "second")
    assert bodies(place.consume(5)) == once(5, "second")


def acquaint(place: Place) -> None:
    """Let brokers know the group; a new one's client looks 20 s later for the topic of its failures."""
    place.produce(1, "--prefix", "hello")
    assert bodies(place.consume(1)) == once(1, "hello")


def failures_come_again(place: Place) -> None:
    acquaint(place)
    place.produce(3)
    lines = place.consume(3, "--later", 1, "--later-level", 1)
    assert bodies(lines) == bodies(lines, "later") == once(3)
    assert {line["reconsume"] for line in lines if line["event"] == "message"} == {1}


def failures_die(place: Place) -> None:
    acquaint(place)
    place.produce(2)
    later = ("--later", -1, "--later-level", 1, "--max-reconsume", 1, "--expect-later", 4)
    assert bodies(place.consume(0, *later), "later") == once(2) + once(2)
    dead = Place(place.java, place.namesrv, f"%DLQ%G{place.topic}")
    where = ("--namesrv", dead.namesrv, "--topic", dead.topic, "--group", f"D{place.topic}")
    lines = dead.java.run("Consume", *where, "--expect", 2, "--timeout", TIMEOUT_S, "--linger", SETTLE_MS)
    assert bodies(lines) == once(2)


def transactions_end_as_told(place: Place) -> None:
    """Of four in turn: committed, rolled back, committed when asked, rolled back when asked."""
    lines = place.run("Transaction", "--count", 8, "--expect-checks", 4, "--timeout", TIMEOUT_S)
    assert {line["body"] for line in lines if line["event"] == "check"} == {"m-2", "m-3", "m-6", "m-7"}
    lines = place.consume(4, "--linger", 1500)
    assert bodies(lines) == Counter(["m-0", "m-2", "m-4", "m-6"])


def delay_levels_wait(place: Place) -> None:
    group = ("--group", f"G{place.topic}")
    place.run("Delay", *group, "--level", 1, "--tolerance", 60_000, "--timeout", TIMEOUT_S)


def timers_wait(place: Place) -> None:
    group = ("--group", f"G{place.topic}")
    place.run("Delay", *group, "--ms", 2500, "--tolerance", 60_000, "--timeout", TIMEOUT_S)


def messages_are_found(place: Place) -> None:
    sent = [line for line in place.produce(4) if line["event"] == "sent"]
    assert bodies(place.run("Query", "--key", "m-2", "--within", TIMEOUT_S)) == Counter(["m-2"])
    assert bodies(place.run("Query", "--id", sent[1]["offsetMsgId"])) == Counter(["m-1"])
    assert bodies(place.run("Query", "--id", sent[3]["uniq"])) == Counter(["m-3"])
    queues = [line for line in place.run("Query", "--offsets") if line["event"] == "queue"]
    assert len(queues) == len({line["queue"] for line in queues}) == 4
    for line in queues:
        assert (line["min"], line["atTimeZero"]) == (0, 0)
        assert line["atNow"] in {line["max"], max(0, line["max"] - 1)}  # 4.9 names the last one
    assert sum(line["max"] for line in queues) == 4


def requests_are_replied(place: Place) -> None:
    place.produce(1)
    replier = place.java.start("Consume", *place.group(4, "--reply"))
    replier.until("ready")
    lines = place.produce(3, "--mode", "request", "--prefix", "ask", "--timeout", TIMEOUT_S)
    assert bodies(lines, "reply") == once(3, "re:ask")
    assert bodies(replier.end()) == once(1) + once(3, "ask")


def pops_are_acknowledged(place: Place) -> None:
    """A push consumer whose queues the broker shares: its messages are popped."""
    place.produce(10)
    mode = ("setConsumeMode", "-n", place.namesrv, "-c", "DefaultCluster")
    said = place.java.admin(*mode, "-t", place.topic, "-g", f"G{place.topic}", "-m", "POP", "-q", 8)
    assert "success" in said, said
    lines = place.consume(10, "--pop", "--later", 0)
    assert bodies(lines) == once(10)
    assert all("POP_CK" in line["properties"] for line in lines if line["event"] == "message")
    place.produce(5, "--prefix", "second")
    assert bodies(place.consume(5, "--pop")) == once(5, "second")


CASES: dict[str, Case] = {
    **{f"send-{mode}": sends(mode) for mode in ("sync", "async", "oneway", "batch")},
    **{f"read-{mode}": reads(mode) for mode in ("pull", "lite", "assign")},
    "large": large_bodies,
    "tags": tags_choose,
    "sql": sql_chooses,
    "two-members": two_members_share,
    "broadcast": broadcast_reaches_both,
    "orderly": orderly_keeps_order,
    "committed": group_goes_on,
    "retry": failures_come_again,
    "dead-letter": failures_die,
    "transaction": transactions_end_as_told,
    "delay-level": delay_levels_wait,
    "query": messages_are_found,
    "request-reply": requests_are_replied,
}
"""By the word that names a topic."""
NEWER: dict[str, Case] = {"timer": timers_wait, "pop": pops_are_acknowledged}
"""What came with 5.0."""
