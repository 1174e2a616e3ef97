import contextlib
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.errors import MalformedBodyError, SubscriptionSyntaxError
from pyledger.model.message import MessageQueue
from pyledger.model.route import BrokerRoute, QueueMapping, QueueRoute, TopicRoute
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.tags import java_hash
from pyledger.model.topic import DataVersion, Permission, TopicConfig
from pyledger.wire.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumerEntry, ConsumeType, Heartbeat
from pyledger.wire.remoting.bodies.json_body import Body, decode_body, encode_body
from pyledger.wire.remoting.bodies.membership import LockBatchResponse
from pyledger.wire.remoting.bodies.offsets import ConsumerOffsetTable, QueueOffsets
from pyledger.wire.remoting.bodies.pop import BatchAckRequest, encode_bit_set
from pyledger.wire.remoting.bodies.registration import RegisterBrokerBody, decode_registration
from pyledger.wire.remoting.bodies.route import decode_route, encode_route, reads_standard_json
from pyledger.wire.remoting.bodies.statistics import ConsumeStats, TopicStatsTable
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.bodies.topic_config import TopicConfigTable, TopicList
from tests.golden.remoting_frames import recorded_frames
from tests.golden.test_remoting import REQUEST_BODIES, RESPONSE_BODIES, decoded

QUEUE = MessageQueue("T", "b", 3)
ROUTE = TopicRoute(
    queues=(QueueRoute("b", 4, 8, Permission.READ | Permission.WRITE),),
    brokers=(BrokerRoute("c", "b", {0: "10.0.0.1:10911", 1: "é/"}),),
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
KINDS: list[Any] = sorted(
    {*REQUEST_BODIES.values(), *RESPONSE_BODIES.values()}, key=lambda kind: kind.__name__
)


def test_a_route_has_the_form_that_the_client_reads() -> None:
    old = encode_route(ROUTE, standard=reads_standard_json(400))
    assert old.decode() == (
        '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"é/"},"brokerName":"b","cluster":"c",'
        '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,'
        '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    new = encode_route(ROUTE, standard=reads_standard_json(401))
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911","1":"\\u00e9\\/"}' in new
    assert decode_route(old) == decode_route(new) == ROUTE
    assert reads_standard_json(0, True)
    json.loads(new)


@pytest.mark.parametrize(
    "table",
    ['{{"brokerName":"b","queueId":3,"topic":"T"}:7}', '{{topic:"T",QueueID:"3",brokername:"b"}:7.0}'],
)
def test_queues_are_read_as_keys(table: str) -> None:
    if "QueueID" not in table:
        offsets = QueueOffsets(offset_table={QUEUE: 7})
        assert offsets.encode().decode() == f'{{"offsetTable":{table}}}'
        assert QueueOffsets.decode(offsets.encode(standard=True)) == offsets
        assert json.loads(offsets.encode(standard=True)) == {"offsetTable": {table[1:-3]: 7}}
    assert QueueOffsets.decode(f'{{"offsetTable":{table}}}'.encode()).offset_table == {QUEUE: 7}


def test_references_are_followed() -> None:
    body = (
        '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"maxOffset":5},'
        '{"brokerName":"b","queueId":4,"topic":"T"}:{"$ref":"$.first"}},"first":{"maxOffset":9}}'
    )
    table = TopicStatsTable.decode(body.encode()).offset_table
    assert [one.max_offset for one in table.values()] == [5, 9]


@pytest.mark.parametrize(
    "body",
    [
        '{"consumeTps":"1.5","offset_table":{},"else":[1]}',
        "{consumeTps:1.5,}",
        "{'ConsumeTPS':1.5}\n",
        '{"consumeTps":1.5,"offsetTable":null}',
    ],
)
def test_bodies_are_read_as_fastjson_reads_them(body: str) -> None:
    assert ConsumeStats.decode(body.encode()) == ConsumeStats(consume_tps=1.5)


def test_unknown_names_of_enumerations_count_as_null() -> None:
    body = b'{"consumerDataSet":[{"consumeType":"CONSUME_LATER","consumeFromWhere":4,"groupName":"g"},null]}'
    entry = ConsumerEntry(group_name="g", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
    assert Heartbeat.decode(body) == Heartbeat(consumer_data_set=(entry,))
    assert ConsumeType("CONSUME_POP") is ConsumeType.POP


@pytest.mark.parametrize(
    ("kind", "body", "place"),
    [
        (TopicList, "", ""),
        (TopicList, "[]", ""),
        (TopicList, '{"topicList":{}}', ".topicList"),
        (
            Heartbeat,
            '{"consumerDataSet":[{"subscriptionDataSet":[7]}]}',
            ".consumerDataSet.0.subscriptionDataSet.0",
        ),
        (ConsumerOffsetTable, '{"offsetTable":{"t@g":{"0":"x"}}}', ".offsetTable.t@g.0"),
        (ConsumerOffsetTable, '{"offsetTable":{"t@g":{4294967296:0}}}', ".offsetTable.t@g.4294967296"),
        (QueueOffsets, '{"offsetTable":{"queue":0}}', ".offsetTable.queue"),
        (QueueOffsets, '{"offsetTable":{{"$ref":"$"}:0}}', '.offsetTable.{"$ref":"$"}'),
        (LockBatchResponse, '{"lockOKMQSet":[{"queueId":0}]}', ".lockOKMQSet.0"),
        (TopicConfigTable, '{"topicConfigTable":{"T":{"perm":"all"}}}', ".topicConfigTable.T"),
        (TopicConfigTable, '{"topicConfigTable":{"T":{"attributes":7}}}', ".topicConfigTable.T"),
        (TopicConfigTable, '{"dataVersion":[]}', ".dataVersion"),
        (ConsumeStats, '{"consumeTps":[]}', ".consumeTps"),
        (SubscriptionGroup, '{"consumeEnable":{}}', ".consumeEnable"),
        (TopicRoute, '{"brokerDatas":[{"brokerName":"b"}]}', ".brokerDatas.0.cluster"),
    ],
)
def test_errors_name_the_position(kind: type[Any], body: str, place: str) -> None:
    with pytest.raises(MalformedBodyError) as caught:
        decode_body(kind, body.encode())
    assert (caught.value.kind, caught.value.place) == (kind.__name__, place)


def read(kind: Any, body: bytes) -> None:
    try:
        value = decode_body(kind, body)
    except MalformedBodyError:
        return
    if isinstance(value, Body):
        json.loads(encode_body(value, standard=True))


@settings(max_examples=300)
@given(st.sampled_from(KINDS), st.binary(max_size=60) | documents.map(lambda one: json.dumps(one).encode()))
def test_any_bytes_are_a_body_or_an_error(kind: Any, body: bytes) -> None:
    read(kind, body)


@settings(max_examples=300)
@given(st.data())
def test_damaged_bodies_are_a_body_or_an_error(data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from([one for one in recorded_frames() if one.described["bodyLength"]]))
    code = frame.answers["code"] if frame.answers else frame.described["code"]
    kind = (RESPONSE_BODIES if frame.answers else REQUEST_BODIES).get(code, Heartbeat)
    body = bytearray(decoded(frame).body)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read(kind, bytes(body))


@given(st.data())
def test_any_document_fills_any_body_or_is_an_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in KINDS if issubclass(kind, Body)]))
    fields = {name: data.draw(documents) for name in json.loads(kind().encode(standard=True))}
    read(kind, json.dumps(fields).encode())


def packed(parts: list[bytes]) -> bytes:
    return zlib.compress(b"".join(parts))


def counted(text: str) -> bytes:
    return len(text.encode()).to_bytes(4) + text.encode()


VERSION = counted('{"counter":2,"stateVersion":0,"timestamp":5}')
TOPICS = [(2).to_bytes(4), counted("T 4 8 6 SINGLE_TAG"), counted('U 1 1 2 MULTI_TAG {"a":"b"}')]
PARTS = [
    VERSION,
    *TOPICS,
    counted('["f:1"]'),
    (1).to_bytes(4),
    counted('{"topic":"T","bname":"b","totalQueues":4,"epoch":1}'),
]


@pytest.mark.parametrize("version", [400, 479])
def test_a_compressed_registration_is_read(version: int) -> None:
    body = decode_registration(packed(PARTS), version, compressed=True)
    table = body.topic_config_serialize_wrapper
    assert table.data_version == DataVersion(2, 0, 5)
    assert table.topic_config_table == {
        "T": TopicConfig("T", 4, 8, Permission(6), "SINGLE_TAG"),
        "U": TopicConfig("U", 1, 1, Permission(2), "MULTI_TAG", attributes={"a": "b"}),
    }
    assert body.filter_server_list == ("f:1",)
    assert [one.total_queues for one in body.queue_mappings.values()] == ([4] if version == 479 else [])


def test_registrations_of_all_ages_are_read() -> None:
    table = TopicConfigTable(topic_config_table={"T": TopicConfig("T")})
    assert decode_registration(b"", 479) == RegisterBrokerBody()
    old = decode_registration(table.encode(), 36)
    assert (old.topic_config_serialize_wrapper, old.filter_server_list) == (table, None)
    new = RegisterBrokerBody(topic_config_serialize_wrapper=table)
    assert decode_registration(new.encode(), 37) == new


@given(st.data())
def test_damaged_registrations_are_a_body_or_an_error(data: st.DataObject) -> None:
    plain = bytearray(b"".join(PARTS))
    for _ in range(data.draw(st.integers(1, 4))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    del plain[data.draw(st.integers(0, len(plain))) :]
    with contextlib.suppress(MalformedBodyError):
        body = decode_registration(packed([bytes(plain)]), 479, compressed=True)
        assert all(isinstance(one, QueueMapping) for one in body.queue_mappings.values())


def test_a_registration_that_decompresses_to_too_much_is_rejected() -> None:
    bomb = zlib.compress(bytes(65 << 20), 9)
    with pytest.raises(MalformedBodyError, match="exceeds the limit"):
        decode_registration(bomb, 479, compressed=True)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("a", ["a"]), (" a || b||", ["a", "b"]), ("a||a", ["a"]), (" ", []), ("FB||Ea", ["FB", "Ea"])],
)
def test_a_subscription_holds_tags_and_their_codes(expression: str, tags: list[str]) -> None:
    subscription = Subscription.of("T", expression, 5)
    assert list(subscription.tags_set) == tags
    assert list(subscription.code_set) == list(dict.fromkeys(map(java_hash, tags)))


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_a_subscription_to_all_has_no_tags(expression: str | None) -> None:
    assert Subscription.of("T", expression, 5) == Subscription(topic="T", sub_string="*", sub_version=5)


def test_a_subscription_of_bars_alone_is_rejected() -> None:
    with pytest.raises(SubscriptionSyntaxError):
        Subscription.of("T", "||", 5)
    assert Subscription.of("T", "a > 1 || b", 5, "SQL92").tags_set == ()


@given(st.sets(st.integers(0, 100)), st.integers(0, 1 << 40))
def test_bit_sets_name_offsets(positions: set[int], start: int) -> None:
    for names in ({"b": "b", "so": "so"}, {"b": "bitSet", "so": "startOffset"}):
        body = {"acks": [{names["b"]: encode_bit_set(positions), names["so"]: start}], "brokerName": "b"}
        [ack] = BatchAckRequest.decode(json.dumps(body).encode()).acks
        assert ack.acked_offsets == tuple(start + one for one in sorted(positions))
