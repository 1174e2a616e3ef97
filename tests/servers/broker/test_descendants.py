"""No message has more descendants than its kind allows, whatever clients ask for and folders come with."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode
from pyledger.servers.broker.server import Broker
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.command import RemotingCommand
from tests.models.descendants import Descendants
from tests.net.peers import RawPeer, until
from tests.servers.broker.peers import SMALL, broker, heartbeat, make_request, peer, send
from tests.servers.broker.test_pop import named, pop, popped
from tests.servers.broker.test_timers import SetClock

INTERNAL = [
    names.SCHEDULE_TOPIC, names.TIMER_TOPIC, names.HALF_TOPIC, names.OP_TOPIC,
    names.revive_topic("DefaultCluster"),
]  # fmt: skip
TOPICS = ["T", "T", "U", "%RETRY%G", "%DLQ%G", *INTERNAL]
WISHES: list[dict[str, str]] = [
    {}, {"DELAY": "1"}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "2"}, {"TIMER_DELAY_MS": "0"},
    {"TRAN_MSG": "true", "PGROUP": "P"}, {"TRAN_MSG": "true", "PGROUP": "P", "DELAY": "1"},
    {"TRAN_MSG": "true", "PGROUP": "P", "CHECK_IMMUNITY_TIME_IN_SECONDS": "5"},
]  # fmt: skip
FORGED: list[dict[str, str]] = [
    {}, *({"REAL_TOPIC": topic, "REAL_QID": "0", "TIMER_OUT_MS": "1"} for topic in INTERNAL),
    {"RETRY_TOPIC": names.SCHEDULE_TOPIC}, {"TIMER_ROLL_TIMES": "9"}, {"TRAN_PREPARED_QUEUE_OFFSET": "0"},
]  # fmt: skip
ANY = st.integers(0, 30)
OPERATIONS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(TOPICS), st.sampled_from(WISHES), st.sampled_from(FORGED)),
    st.tuples(st.just("batch"), st.sampled_from(TOPICS), st.sampled_from(WISHES), st.sampled_from(FORGED)),
    st.tuples(st.just("back"), ANY, st.sampled_from([-1, 0, 1])),
    st.tuples(st.just("end"), ANY, st.sampled_from([8, 8, 12])),
    st.tuples(st.just("pop"), st.sampled_from(TOPICS), ANY),
    st.tuples(st.just("time"), st.sampled_from([1000, 6000, 20_000])),
    st.tuples(st.just("restart")),
    st.tuples(st.just("came"), st.sampled_from(INTERNAL), st.sampled_from(FORGED)),
)
MESSAGE_OF_THE_TRIAL = [("send", names.TIMER_TOPIC, {}, FORGED[1]), ("time", 6000), ("time", 6000)]
TO_A_RETRY_TOPIC = [("send", "T", {}, {}), ("send", "%RETRY%G", {"TRAN_MSG": "true", "DELAY": "1"}, {})]
SAME_FROM_A_FOLDER = [("came", names.TIMER_TOPIC, FORGED[1]), ("time", 6000), ("restart",), ("time", 6000)]


class World:
    """One broker after another on one folder, and the model beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.model = folder, SetClock(), Descendants()
        self.count = 0

    def body(self) -> bytes:
        self.count += 1
        return b"m%d" % self.count

    async def play(self, operations: list[tuple[Any, ...]]) -> None:
        """Go through all of them; a broker lives until the next restart."""
        left = list(operations)
        while left:
            while left and left[0][0] in ("came", "restart"):
                if (operation := left.pop(0))[0] == "came":
                    self.came(*operation[1:])
            async with (
                broker(self.folder, clock=self.clock, delivery={"recall": True}) as one,
                peer(one) as client,
                peer(one) as member,
            ):
                await member.request(heartbeat("c", "T"))
                self.check(one)
                while left and left[0][0] not in ("came", "restart"):
                    name, *rest = left.pop(0)
                    await getattr(self, name)(one, client, *rest)
                    await settled(one)
                    self.check(one)

    def check(self, one: Broker) -> None:
        """The invariant."""
        bodies = [message.body for message in records(one) if message.body.startswith(b"m")]
        assert self.model.excess(bodies) == {}

    def came(self, topic: str, forged: dict[str, str]) -> None:
        """Another broker has left a message in a topic of its own."""
        body = self.body()
        self.model.stored(body, waits=True)
        with StoreEngine.open(self.folder / "store", **SMALL) as store:
            store.put(Message(topic, body, properties={"PGROUP": "P", **forged}))

    async def send(
        self, one: Broker, client: RawPeer, topic: str, wish: dict[str, str], forged: dict[str, str]
    ) -> None:
        body = self.body()
        request = send(topic, body, properties={"UNIQ_KEY": body.decode(), **wish, **forged})
        answer = await client.request(request)
        if topic in INTERNAL:
            assert answer.code != 0
        if answer.code == 0:
            half = "TRAN_MSG" in wish and not topic.startswith("%RETRY%")
            self.model.stored(body, waits=is_later(wish) and not half)

    async def batch(
        self, one: Broker, client: RawPeer, topic: str, wish: dict[str, str], forged: dict[str, str]
    ) -> None:
        bodies = [self.body() for _ in range(2)]
        items = [BatchItem(body, encode_properties({**wish, **forged}), 0) for body in bodies]
        code = RequestCode.SEND_BATCH_MESSAGE
        answer = await client.request(send(topic, encode_batch(items), batch=True, code=code))
        if answer.code == 0:
            for body in bodies:
                self.model.stored(body, waits=False)

    async def back(self, one: Broker, client: RawPeer, number: int, level: int) -> None:
        """A consumer sends back whatever stands in the log."""
        found = records(one)
        if not found:
            return
        message = found[number % len(found)]
        request = make_request(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=message.physical_offset, group="G", delayLevel=level
        )
        if (await client.request(request)).code == 0:
            self.model.stored(message.body, waits=True)

    async def end(self, one: Broker, client: RawPeer, number: int, how: int) -> None:
        """A producer ends whatever stands in the half topic."""
        halves = [message for message in records(one) if message.topic == names.HALF_TOPIC]
        if not halves:
            return
        half = halves[number % len(halves)]
        request = make_request(
            RequestCode.END_TRANSACTION, producerGroup="P", commitOrRollback=how, msgId="U",
            tranStateTableOffset=half.queue_offset, commitLogOffset=half.physical_offset,
        )  # fmt: skip
        if (await client.request(request)).code == 0 and how == 8:
            self.model.stored(half.body, waits=is_later(half.properties))

    async def pop(self, one: Broker, client: RawPeer, topic: str, number: int) -> None:
        """A consumer pops, hides one for longer, and acknowledges another."""
        answer: RemotingCommand = await client.request(pop(topic))
        taken = popped(answer)
        self.model.may_be_put_back(body for body, _ in taken)
        for code in (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.ACK_MESSAGE):
            if taken:
                body, handle = taken[number % len(taken)]
                fields = named(handle, topic=topic, invisibleTime=5000)
                changed = await client.request(make_request(code, **fields))
                if code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME and changed.code == 0:
                    self.model.may_be_put_back([body])

    async def time(self, one: Broker, client: RawPeer, passed_ms: int) -> None:
        """Time passes, and all of the broker's own services have their turn, several times."""
        self.clock.time_ms += passed_ms
        assert one.context is not None
        halves = {message.body for message in records(one) if message.topic == names.HALF_TOPIC}
        self.model.may_be_put_back(halves)
        await one.context.transactions.check()
        for _ in range(4):
            assert one._delays is not None
            assert one._timers is not None
            one._delays.close()
            one._delays._poll()
            one._timers._poll()
            one.context.pops._poll()
            await settled(one)
            self.check(one)


def is_later(properties: Any) -> bool:
    """Whether a message waits for its time."""
    return any(name in properties for name in ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"))


def records(one: Broker) -> list[Any]:
    """All that the log holds."""
    found, at = [], one.store.min_offset
    while at < one.store.max_offset:
        message = one.store.message_at(at)
        found.append(message)
        at += message.store_size
    return found


async def settled(one: Broker) -> None:
    """What is stored can be read."""
    await until(lambda: one.store.dispatch() >= one.store.max_offset)


@settings(deadline=None, max_examples=25)
@given(st.lists(OPERATIONS, min_size=4, max_size=16))
@example(MESSAGE_OF_THE_TRIAL)
@example(SAME_FROM_A_FOLDER)
@example(TO_A_RETRY_TOPIC)
def test_no_message_has_more_descendants_than_its_kind_allows(operations: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(World(Path(folder)).play([*operations, ("time", 20_000), ("restart",), ("time", 20_000)]))
