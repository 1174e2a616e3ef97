"""The folder of a broker that runs and takes messages is read by readers, by commands, and by Arrow."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc

from pyledger import arrow
from pyledger.client.blocking.producer import Producer
from pyledger.model.message import Message
from pyledger.servers.local.rocketmq import LocalBroker
from pyledger.store.reading.reader import StoreReader
from tests.cli.command_line import pyledger

TOPIC = "live"
BATCH = 16
PAUSE_S = 0.002
"""Between two sends: who reads shares the processor with the broker."""
SEND_TIMEOUT_MS = 60_000
"""A send that is given up may be stored all the same, and is not counted here."""


class Sending:
    """A thread that sends numbered messages to a broker until it is told to stop."""

    def __init__(self, node: LocalBroker) -> None:
        self.acknowledged = 0
        """So many messages, from number 0 on, are stored."""
        self._node = node
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        with Producer("live", self._node.address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
            while not self._stop.is_set():
                first = self.acknowledged
                producer.send(
                    [
                        Message(TOPIC, body_of(number), keys=f"k{number}")
                        for number in range(first, first + BATCH)
                    ]
                )
                self.acknowledged += BATCH
                self._stop.wait(PAUSE_S)

    def wait_for(self, count: int) -> None:
        """Wait until so many messages are acknowledged."""
        while self.acknowledged < count:
            self._thread.join(0.01)
            assert self._thread.is_alive(), "sending ended"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def body_of(number: int) -> bytes:
    return b"%d:" % number + b"x" * (number % 700)


@contextmanager
def sending(folder: Path) -> Iterator[tuple[LocalBroker, Sending]]:
    """A broker that takes messages for the length of a block."""
    with LocalBroker(folder / "store") as node:
        one = Sending(node)
        one.start()
        try:
            one.wait_for(64)
            yield node, one
        finally:
            one.stop()


def check(bodies: list[bytes], least: int, most: int) -> None:
    """The messages are whole, none is missing that was acknowledged before, none came from nowhere."""
    numbers = sorted(int(body.partition(b":")[0]) for body in bodies)
    assert sorted(bodies) == sorted(map(body_of, numbers))
    assert numbers == list(range(len(numbers)))
    assert least <= len(numbers) <= most


def test_readers_see_what_was_acknowledged(tmp_path: Path) -> None:
    with sending(tmp_path) as (node, sent):
        for sent_count in range(200, 1200, 200):
            sent.wait_for(sent_count)
            for order in ("log", "queue"):
                least = sent.acknowledged
                with StoreReader.open(node.folder) as reader:
                    bodies = [one.body for one in reader.messages(order=order, topics=[TOPIC])]
                    found = reader.query(TOPIC, f"k{least - 1}")
                check(bodies, least, sent.acknowledged + BATCH)
                assert [one.body for one in found] == [body_of(least - 1)]


def test_commands_and_arrow_see_what_was_acknowledged(tmp_path: Path) -> None:
    with sending(tmp_path) as (node, sent):
        least = sent.acknowledged
        lines = pyledger("cat", node.folder, "--topic", TOPIC, "--order", "queue", "--json")
        assert (lines.code, lines.err) == (0, "")
        check([one["body"].encode() for one in lines.json], least, sent.acknowledged + BATCH)
        least = sent.acknowledged
        table = arrow.scan(node.folder, topics=[TOPIC]).read_all()
        check([body.as_py() for body in table["body"]], least, sent.acknowledged + BATCH)
        assert pc.min(table["queueOffset"]).as_py() == 0
        [info, *_] = pyledger("info", node.folder, "--json").json
        assert not info["clean"]
        assert info["messages"] >= least
        verified = [json.loads(line) for line in pyledger("verify", node.folder, "--json").lines]
        assert verified[-1]["errors"] == 0, verified
    assert pyledger("info", node.folder, "--json").json[0]["clean"]
