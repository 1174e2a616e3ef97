"""Frames that a load is made of, encoded before any clock starts: the same bytes for every broker."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, encode_frame
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader

BATCH = 32
"""Messages of one batch, and of one pull."""


@dataclass(frozen=True)
class FrameSource:
    """Requests to queue 0 of a topic."""

    topic: str
    body: bytes = bytes(range(256))
    serialize: SerializeType = SerializeType.JSON

    def sends(self, count: int) -> Iterator[bytes]:
        """Single sends, each with a tag and a unique key of its own."""
        for number in range(count):
            properties = {"UNIQ_KEY": f"{number:032X}", "WAIT": "true", "TAGS": "A"}
            header = self._send_header(properties, batch=False)
            yield self._frame(RequestCode.SEND_MESSAGE_V2, header, self.body, number)

    def batches(self, count: int) -> Iterator[bytes]:
        """Batches, each message with a unique key."""
        for number in range(count):
            keys = (f"{number * BATCH + one:032X}" for one in range(BATCH))
            body = encode_batch(BatchItem(self.body, encode_properties({"UNIQ_KEY": key})) for key in keys)
            header = self._send_header({"WAIT": "true"}, batch=True)
            yield self._frame(RequestCode.SEND_BATCH_MESSAGE, header, body, number)

    def pulls(self, begin: int, count: int) -> Iterator[bytes]:
        """Pulls, one after another from a queue offset on."""
        for number in range(count):
            header = PullMessageRequestHeader(
                consumer_group="bench_load_group",
                topic=self.topic,
                queue_id=0,
                queue_offset=begin + number * BATCH,
                max_msg_nums=BATCH,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
                expression_type="TAG",
            )
            yield self._frame(RequestCode.PULL_MESSAGE, header, b"", number)

    def end_asked(self) -> bytes:
        """A question for the queue's end."""
        fields = {"topic": self.topic, "queueId": "0"}
        return encode_frame(RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ext_fields=fields))

    def _send_header(self, properties: dict[str, str], *, batch: bool) -> SendMessageRequestHeader:
        return SendMessageRequestHeader(
            producer_group="bench_producer",
            topic=self.topic,
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

    def _frame(self, code: int, header: object, body: bytes, opaque: int) -> bytes:
        command = RemotingCommand.request(code, header, body)
        command.serialize, command.opaque = self.serialize, opaque
        return encode_frame(command)
