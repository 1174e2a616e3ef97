"""RocketMQ's C++ client, by the Python binding that carries its library; prints JSON lines.

cpp_client.py produce --namesrv H:P --topic T [--mode sync|async|oneway|batch|orderly] [--count 10]
    [--tags A,B]
cpp_client.py consume --namesrv H:P --topic T --group G [--filter "*"] [--orderly] [--broadcast] [--expect N]
    [--counted PREFIX] [--later N] [--timeout 60]

`--later N` asks for a message again until it came N times more; `--counted` leaves out of the count what
begins otherwise. Ends with `{"event": "summary", "ok": …}`, and with 0 when everything wanted came in time.
"""

import argparse
import json
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.ffi import MessageModel

LOCK = threading.Lock()
ONEWAY_SETTLE_S = 1
"""Nobody says when the last one has left."""


def report(event: str, **fields: object) -> None:
    """Print a line; callbacks come on threads of the library."""
    with LOCK:
        print(json.dumps({"event": event, **fields}), flush=True)


def message(options: argparse.Namespace, number: int) -> Message:
    """Message `number`: its body and key say which, its tag is the next of `--tags`."""
    text = f"{options.prefix}-{number}"
    made = Message(options.topic)
    made.set_keys(text)
    if options.tags:
        tags = options.tags.split(",")
        made.set_tags(tags[number % len(tags)])
    made.set_body(text)
    return made


def produce(options: argparse.Namespace) -> bool:
    """Send messages in one way; whether all were taken."""
    producer = Producer(options.group)
    producer.set_namesrv_addr(options.namesrv)
    producer.start()
    sent, left = [], threading.Semaphore(0)

    def taken(number: int, result: object) -> None:
        sent.append(number)
        report("sent", i=number, status=result.status.name, uniq=result.msg_id, offset=result.offset)
        left.release()

    def refused(number: int, error: object) -> None:
        report("error", i=number, text=str(error))
        left.release()

    for number in range(options.count):
        made = message(options, number)
        if options.mode == "sync":
            taken(number, producer.send_sync(made))
        elif options.mode == "orderly":
            taken(number, producer.send_orderly(made, number))
        elif options.mode == "oneway":
            producer.send_oneway(made)
            sent.append(number)
        elif options.mode == "async":
            producer.send_async(
                made, lambda r, number=number: taken(number, r), lambda e, number=number: refused(number, e)
            )
    if options.mode == "batch":
        producer.send_batch([message(options, number) for number in range(options.count)])
        sent.extend(range(options.count))
    if options.mode == "async":
        for _ in range(options.count):
            left.acquire(timeout=options.timeout)
    if options.mode == "oneway":
        time.sleep(ONEWAY_SETTLE_S)
    producer.shutdown()
    good = len(sent) == options.count
    report("summary", ok=good, sent=len(sent))
    return good


def consume(options: argparse.Namespace) -> bool:
    """Consume until enough came; whether it did."""
    seen: set[str] = set()
    model = MessageModel.BROADCASTING if options.broadcast else MessageModel.CLUSTERING
    consumer = PushConsumer(options.group, orderly=options.orderly, message_model=model)
    consumer.set_namesrv_addr(options.namesrv)

    def received(found: object) -> None:
        accepted = found.reconsume_times >= options.later
        body = found.body.decode()
        if accepted and body.startswith(options.counted):
            seen.add(body)
        report(
            "message" if accepted else "later",
            topic=found.topic, queue=found.queue_id, offset=found.queue_offset, uniq=found.id, body=body,
            tags=found.tags.decode(), keys=found.keys.decode(), reconsume=found.reconsume_times,
        )  # fmt: skip
        if not accepted:
            raise RuntimeError("again, please")

    consumer.subscribe(options.topic, received, options.filter)
    consumer.start()
    report("ready")
    end = time.monotonic() + options.timeout
    while len(seen) < options.expect and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(options.linger / 1000)
    consumer.shutdown()
    good = len(seen) >= options.expect
    report("summary", ok=good, accepted=len(seen))
    return good


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("produce", "consume"):
        command = commands.add_parser(name)
        command.add_argument("--namesrv", required=True)
        command.add_argument("--topic", required=True)
        command.add_argument("--group", default="cpp_producer")
        command.add_argument("--timeout", type=float, default=60)
    produced, consumed = commands.choices["produce"], commands.choices["consume"]
    produced.add_argument("--mode", default="sync")
    produced.add_argument("--count", type=int, default=10)
    produced.add_argument("--tags", default="")
    produced.add_argument("--prefix", default="c")
    consumed.add_argument("--filter", default="*")
    consumed.add_argument("--orderly", action="store_true")
    consumed.add_argument("--broadcast", action="store_true")
    consumed.add_argument("--counted", default="")
    consumed.add_argument("--later", type=int, default=0)
    consumed.add_argument("--expect", type=int, default=1)
    consumed.add_argument("--linger", type=int, default=0)
    options = parser.parse_args()
    sys.exit(0 if (produce if options.command == "produce" else consume)(options) else 1)


if __name__ == "__main__":
    main()
