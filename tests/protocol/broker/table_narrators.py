"""Narrators of the tables: long polling, members, locks, offsets."""

from collections.abc import Iterable

from pyledger.config.delivery import DeliveryConfig
from pyledger.model.message import MessageQueue, QueueRange
from pyledger.model.tags import java_hash
from pyledger.protocol.broker.client_channel import Client, Notice
from pyledger.protocol.broker.consumer_offsets import OffsetTable, offset_to_answer, reset_allowed
from pyledger.protocol.broker.consumer_registry import ConsumerState, ConsumerTable
from pyledger.protocol.broker.long_poll import LongPollTable, ParkedPull
from pyledger.protocol.broker.producer_registry import ProducerTable
from pyledger.protocol.broker.queue_locks import QueueLocks
from pyledger.protocol.broker.subscription import Subscription, parse_subscription
from tests.protocol.broker.narrator import Narrator, place
from tests.support.datadriven import Step


class LongPoll(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.table = LongPollTable(self.config)
        self.ends: dict[tuple[str, int], int] = {}

    def settings(self, step: Step) -> str:
        self.table = LongPollTable(
            DeliveryConfig(long_polling="short" not in step.words, parked_pulls_max=step.integer("max", 1000))
        )
        return ""

    def park(self, step: Step) -> str:
        topic, queue_id = place(step.words[1])
        wanted = None
        if "tags" in step.named:
            subscription = parse_subscription(topic, step.named["tags"])
            wanted = lambda code, _: subscription.wants_code(code)  # noqa: E731
        parked = self.table.park(
            step.words[0],
            channel=step.named.get("channel", step.words[0]),
            topic=topic,
            queue_id=queue_id,
            offset=step.integer("offset"),
            hold_ms=step.integer("hold", 15_000),
            now_ms=self.now_ms,
            wanted=wanted,
        )
        return f"parked, deadline {self.table.deadline_ms()}" if parked else "refused"

    def arrive(self, step: Step) -> str:
        topic, queue_id = place(step.words[0])
        self.ends[topic, queue_id] = step.integer("end")
        code = java_hash(step.named["tag"]) if "tag" in step.named else None
        return woken(self.table.arrive(topic, queue_id, step.integer("end"), code))

    def grow(self, step: Step) -> str:
        self.ends[place(step.words[0])] = step.integer("end")
        return ""

    def tick(self, step: Step) -> str:
        return woken(self.table.tick(self.now_ms))

    def sweep(self, step: Step) -> str:
        return woken(
            self.table.sweep(self.now_ms, lambda topic, queue_id: self.ends.get((topic, queue_id), 0))
        )

    def close(self, step: Step) -> str:
        return f"dropped {self.table.drop_channel(step.words[0])}"

    def show(self, step: Step) -> str:
        return f"{self.table.describe()}\ndeadline {self.table.deadline_ms()}"


def woken(pulls: Iterable[ParkedPull]) -> str:
    return "wakes " + (" ".join(str(pull.request) for pull in pulls) or "nobody")


class Consumers(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.table = ConsumerTable(self.config)

    def heartbeat(self, step: Step) -> str:
        group, client_id = step.words
        subscriptions: list[Subscription] | None = [
            parse_subscription(name, expression or "*", version=step.integer("version", 1))
            for name, _, expression in (item.partition(":") for item in step.items("topics"))
        ]
        if "none" in step.named.get("topics", ""):
            subscriptions = None
        member = Client(step.named.get("channel", client_id), client_id, 0, 479, self.now_ms)
        state = ConsumerState(message_model=step.named.get("model", "CLUSTERING"))
        notify = step.named.get("notify", "yes") == "yes"
        return notice_text(self.table.heartbeat(group, member, state, subscriptions, notify=notify))

    def unregister(self, step: Step) -> str:
        return notice_text(self.table.unregister(step.words[0], step.words[1]))

    def close(self, step: Step) -> str:
        return "\n".join(notice_text(notice) for notice in self.table.close_channel(step.words[0]))

    def expire(self, step: Step) -> str:
        return "closes " + (" ".join(map(str, self.table.expire(self.now_ms))) or "nothing")

    def pull(self, step: Step) -> str:
        self.table.note_pulled(step.words[0], parse_subscription(*step.words[1:]), self.now_ms)
        return ""

    def wants(self, step: Step) -> str:
        found = self.table.subscription(*step.words)
        return f"{found.expression} v{found.version}" if found else "nothing"

    def ids(self, step: Step) -> str:
        return " ".join(self.table.client_ids(step.words[0])) or "none"

    def show(self, step: Step) -> str:
        return self.table.describe()


def notice_text(notice: Notice | None) -> str:
    return f"tells {notice.group}: {' '.join(map(str, notice.channels))}" if notice else "tells nobody"


class Producers(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable(self.config)

    def heartbeat(self, step: Step) -> str:
        group, client_id = step.words
        member = Client(step.named.get("channel", client_id), client_id, 0, 479, self.now_ms)
        self.table.heartbeat(group, member)
        return ""

    def close(self, step: Step) -> str:
        self.table.close_channel(step.words[0])
        return self.table.describe()

    def expire(self, step: Step) -> str:
        return "closes " + (" ".join(map(str, self.table.expire(self.now_ms))) or "nothing")

    def choose(self, step: Step) -> str:
        broken = step.items("broken") if "broken" in step.named else []
        strangers = step.items("strangers") if "strangers" in step.named else []
        return str(
            self.table.channel_of_group(
                step.words[0], lambda one: one not in broken, lambda one: one not in strangers
            )
        )

    def reply_to(self, step: Step) -> str:
        return str(self.table.channel_of_client(step.words[0]))

    def show(self, step: Step) -> str:
        return self.table.describe()


class Locks(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.locks = QueueLocks(self.config)

    def queues(self, step: Step) -> list[MessageQueue]:
        return [MessageQueue("T", "b", int(number)) for number in step.items("queues")]

    def lock(self, step: Step) -> str:
        group, client_id = step.words
        taken = self.locks.lock(group, self.queues(step), client_id, self.now_ms)
        return "has " + (" ".join(str(queue.queue_id) for queue in taken) or "none")

    def unlock(self, step: Step) -> str:
        self.locks.unlock(step.words[0], self.queues(step), step.words[1])
        return self.locks.describe(self.now_ms)

    def expire(self, step: Step) -> str:
        self.locks.expire(self.now_ms)
        return self.locks.describe(self.now_ms)

    def orderly(self, step: Step) -> str:
        return "yes" if self.locks.holds_any(step.words[0], self.now_ms) else "no"

    def show(self, step: Step) -> str:
        return self.locks.describe(self.now_ms)


class Offsets(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.table = OffsetTable(DeliveryConfig(offset_version_step=3))

    def commit(self, step: Step) -> str:
        group, queue = step.words
        kept = self.table.commit(group, *place(queue), step.integer("offset"), self.now_ms)
        return "stored" if kept else "ignored: a reset is pending"

    def query(self, step: Step) -> str:
        group, queue = step.words
        zero = {"yes": True, "no": False}.get(step.named.get("zero", ""))
        answer = offset_to_answer(
            self.table.committed(group, *place(queue)),
            set_zero_if_not_found=zero,
            min_offset=step.integer("min", 0),
            first_in_memory=step.named.get("young", "yes") == "yes",
        )
        return "not found" if answer is None else str(answer)

    def reset(self, step: Step) -> str:
        group, queue = step.words
        low, _, high = step.named.get("range", "0..100").partition("..")
        if not reset_allowed(step.integer("offset"), QueueRange(int(low), int(high))):
            return "refused"
        self.table.reset(group, *place(queue), step.integer("offset"))
        return ""

    def pull(self, step: Step) -> str:
        return f"reset {self.table.take_reset(step.words[0], *place(step.words[1]))}"

    def clone(self, step: Step) -> str:
        self.table.clone(*step.words)
        return self.table.describe()

    def delete(self, step: Step) -> str:
        if "group" in step.named:
            self.table.delete_group(step.named["group"])
        else:
            self.table.delete_topic(step.named["topic"])
        return self.table.describe()

    def show(self, step: Step) -> str:
        return self.table.describe()
