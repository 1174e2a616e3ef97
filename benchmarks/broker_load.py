"""A light load for a broker: frames that are encoded before the clock starts, over one blocking socket.

    python -m benchmarks.broker_load 127.0.0.1:10911 --pid 4711

prints, for each kind of load, the rate and the processor time that process 4711, the broker, took for one
message. Any broker of RocketMQ's remoting protocol will do: it has to create topics and groups on first use,
or to know `bench_load` with queue 0 and the group `bench_load_group`.
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from pyledger.wire.batch import BatchItem, encode_batch
from pyledger.wire.codes import RequestCode, ResponseCode
from pyledger.wire.framing import FrameDecoder
from pyledger.wire.headers.pull import PullMessageRequestHeader
from pyledger.wire.headers.send import SendMessageRequestHeader
from pyledger.wire.properties import encode_properties
from pyledger.wire.remoting import RemotingCommand, SerializeType, decode, encode_frame

TOPIC = "bench_load"
GROUP = "bench_load_group"
BODY = bytes(range(256))
BATCH_COUNT = 32
IN_FLIGHT = 1_024
PULLS_IN_FLIGHT = 64
RECEIVE_BYTES = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


class Load:
    """One connection to a broker."""

    def __init__(self, peer: socket.socket, serialize: SerializeType = SerializeType.JSON) -> None:
        self._peer = peer
        self._serialize = serialize
        self._decoder = FrameDecoder(64 << 20)
        self._waiting: list[memoryview] = []

    def sends(self, count: int) -> list[bytes]:
        """Frames of single sends, each with a unique key of its own."""
        return [
            self._frame(RequestCode.SEND_MESSAGE_V2, send_header(number, batch=False), BODY, number)
            for number in range(count)
        ]

    def batches(self, count: int) -> list[bytes]:
        """Frames of batches."""
        frames = []
        for number in range(count):
            keys = (f"{number * BATCH_COUNT + one:032X}" for one in range(BATCH_COUNT))
            body = encode_batch(BatchItem(BODY, encode_properties({"UNIQ_KEY": key})) for key in keys)
            header = send_header(number, batch=True)
            frames.append(self._frame(RequestCode.SEND_BATCH_MESSAGE, header, body, number))
        return frames

    def pulls(self, begin: int, count: int) -> list[bytes]:
        """Frames of pulls of 32, one after another from a queue offset on."""
        frames = []
        for number in range(count):
            header = PullMessageRequestHeader(
                consumer_group=GROUP,
                topic=TOPIC,
                queue_id=0,
                queue_offset=begin + number * BATCH_COUNT,
                max_msg_nums=BATCH_COUNT,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
                expression_type="TAG",
            )
            frames.append(self._frame(RequestCode.PULL_MESSAGE, header, b"", number))
        return frames

    def run(self, frames: Sequence[bytes], in_flight: int) -> int:
        """Send all, so many at most unanswered; the number of answers, each of which must be a success."""
        sent = done = 0
        size = max(1, in_flight // 2)
        while done < len(frames):
            if sent < len(frames) and sent - done <= in_flight - size:
                self._peer.sendall(b"".join(frames[sent : sent + size]))
                sent = min(len(frames), sent + size)
            for answer in self._received():
                done += 1
                succeeded(answer)
        assert done == len(frames)
        return done

    def queue_end(self) -> int:
        """End offset of the queue."""
        fields = {"topic": TOPIC, "queueId": "0"}
        asked = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ext_fields=fields)
        self._peer.sendall(encode_frame(asked))
        while not (frames := self._received()):
            pass
        return int(succeeded(frames[0])["offset"])

    def _frame(self, code: int, header: object, body: bytes, opaque: int) -> bytes:
        command = RemotingCommand.request(code, header, body)
        command.serialize, command.opaque = self._serialize, opaque
        return encode_frame(command)

    def _received(self) -> list[memoryview]:
        received = self._peer.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the broker closed the connection")
        return self._decoder.feed(received)


def send_header(number: int, *, batch: bool) -> SendMessageRequestHeader:
    """Of one send, or one batch, to queue 0."""
    properties = {"WAIT": "true"} if batch else {"UNIQ_KEY": f"{number:032X}", "WAIT": "true", "TAGS": "A"}
    return SendMessageRequestHeader(
        producer_group="bench_producer",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=encode_properties(properties).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
    )


def succeeded(answer: memoryview) -> dict[str, str]:
    """The fields of an answer; it must be a success."""
    command = decode(answer)
    assert command.code == ResponseCode.SUCCESS, (command.code, command.remark)
    return command.ext_fields


KINDS = {"sync": 1, "async": IN_FLIGHT, "batch": PULLS_IN_FLIGHT, "pull": PULLS_IN_FLIGHT}
"""Requests in flight, by kind of load."""


def measure(
    kind: str, peer: socket.socket, pid: int, messages: int, serialize: SerializeType
) -> dict[str, object]:
    """Run one kind of load; what it cost. A pull reads what the others have stored."""
    load = Load(peer, serialize)
    if kind == "batch":
        frames = load.batches(messages // BATCH_COUNT)
    elif kind == "pull":
        end = load.queue_end()
        messages = min(messages, end) // BATCH_COUNT * BATCH_COUNT
        frames = load.pulls(end // BATCH_COUNT * BATCH_COUNT - messages, messages // BATCH_COUNT)
    else:
        frames = load.sends(messages)
    cpu_s, begin = cpu_seconds(pid), time.monotonic()
    load.run(frames, KINDS[kind])
    elapsed_s = time.monotonic() - begin
    return {
        "kind": kind,
        "header": serialize.name,
        "messages": messages,
        "per_second": round(messages / elapsed_s),
        "broker_cpu_us": round((cpu_seconds(pid) - cpu_s) * 1e6 / messages, 2),
    }


def main() -> None:
    """Drive a running broker, each kind of load in turn."""
    parser = argparse.ArgumentParser(description="Measure what a broker takes for each message.")
    parser.add_argument("address", help="HOST:PORT of the broker")
    parser.add_argument("--pid", type=int, required=True, help="the broker's process")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100_000, help="of a round; a tenth for sync")
    parser.add_argument("--header", choices=[one.name for one in SerializeType], default="JSON")
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    for _ in range(options.rounds):
        for kind in options.kinds:
            messages = options.messages // 10 if kind == "sync" else options.messages
            with socket.create_connection((host, int(port))) as peer:
                found = measure(kind, peer, options.pid, messages, SerializeType[options.header])
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
