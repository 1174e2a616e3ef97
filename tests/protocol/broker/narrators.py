"""One narrator for each machine: runs the steps of a story and says what the machine did."""

from tests.protocol.broker.later_narrators import (
    Assignment,
    Delay,
    OrderedPop,
    Pop,
    Recall,
    Retry,
    Timer,
    Transaction,
)
from tests.protocol.broker.narrator import Narrator
from tests.protocol.broker.rule_narrators import Groups, Pull, Send, Topics
from tests.protocol.broker.table_narrators import Consumers, Locks, LongPoll, Offsets, Producers

NARRATORS: dict[str, type[Narrator]] = {
    "long_poll": LongPoll,
    "consumers": Consumers,
    "producers": Producers,
    "locks": Locks,
    "offsets": Offsets,
    "topics": Topics,
    "groups": Groups,
    "send": Send,
    "pull": Pull,
    "retry": Retry,
    "delay": Delay,
    "timer": Timer,
    "recall": Recall,
    "transaction": Transaction,
    "ordered_pop": OrderedPop,
    "pop": Pop,
    "assignment": Assignment,
}
