"""Frames, headers and bodies against what real peers sent each other."""

import zlib
from typing import Any

from pyledger.errors import HeaderFieldError, MalformedBodyError
from pyledger.model.remoting_codes import LanguageCode, RequestCode, ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import DataVersion, TopicConfig
from pyledger.wire.remoting.bodies import (
    heartbeat,
    membership,
    offsets,
    route,
    statistics,
    subscription,
    topic_config,
)
from pyledger.wire.remoting.bodies.json_body import decode_body, encode_body
from pyledger.wire.remoting.bodies.registration import RegisterBrokerBody
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, decode, encode_frame
from pyledger.wire.remoting.framing import FrameDecoder
from pyledger.wire.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from tests.golden.remoting_frames import RecordedFrame, recorded_frames

REQUEST_BODIES: dict[int, type] = {
    RequestCode.HEART_BEAT: heartbeat.Heartbeat,
    RequestCode.LOCK_BATCH_MQ: membership.LockBatchRequest,
    RequestCode.UNLOCK_BATCH_MQ: membership.LockBatchRequest,
    RequestCode.CHECK_CLIENT_CONFIG: subscription.CheckClientConfig,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroup,
    RequestCode.REGISTER_BROKER: RegisterBrokerBody,
    RequestCode.QUERY_DATA_VERSION: DataVersion,
    RequestCode.QUERY_ASSIGNMENT: membership.QueryAssignmentRequest,
}
RESPONSE_BODIES: dict[int, type] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: route.TopicRoute,
    RequestCode.GET_BROKER_CLUSTER_INFO: route.ClusterRoutes,
    RequestCode.GET_BROKER_MEMBER_GROUP: route.BrokerMembersResponse,
    RequestCode.REGISTER_BROKER: topic_config.KVTable,
    RequestCode.QUERY_DATA_VERSION: DataVersion,
    RequestCode.GET_KVLIST_BY_NAMESPACE: topic_config.KVTable,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topic_config.TopicList,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: topic_config.TopicList,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic_config.TopicList,
    RequestCode.GET_TOPICS_BY_CLUSTER: topic_config.TopicList,
    RequestCode.GET_UNIT_TOPIC_LIST: topic_config.TopicList,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: topic_config.TopicList,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: topic_config.GroupList,
    RequestCode.GET_TOPIC_CONFIG: TopicConfig,
    RequestCode.GET_ALL_TOPIC_CONFIG: topic_config.TopicConfigTable,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroup,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: topic_config.SubscriptionGroupTable,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: membership.ConsumerIds,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: membership.ConsumerConnection,
    RequestCode.LOCK_BATCH_MQ: membership.LockBatchResponse,
    RequestCode.QUERY_ASSIGNMENT: membership.QueryAssignmentResponse,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: membership.MessageRequestModes,
    RequestCode.GET_ALL_CONSUMER_OFFSET: offsets.ConsumerOffsetTable,
    RequestCode.GET_ALL_DELAY_OFFSET: offsets.DelayOffsetTable,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: offsets.QueueOffsets,
    RequestCode.QUERY_CONSUME_QUEUE: offsets.QueueUnits,
    RequestCode.GET_TOPIC_STATS_INFO: statistics.TopicStatsTable,
    RequestCode.GET_CONSUME_STATS: statistics.ConsumeStats,
    RequestCode.VIEW_BROKER_STATS_DATA: statistics.BrokerStats,
    RequestCode.GET_CONSUMER_RUNNING_INFO: statistics.ConsumerRunning,
    RequestCode.GET_TIMER_METRICS: statistics.TimerMetrics,
}
BINARY_BODIES = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.GET_TIMER_CHECK_POINT,
}
UNFINISHED = {"HEART_BEAT": b"not json"}
"""What the recorder sent to be refused."""


def decoded(frame: RecordedFrame) -> RemotingCommand:
    [view] = FrameDecoder().feed(frame.data)
    return decode(view)


def test_frames_decode_to_what_their_recorder_found() -> None:
    for frame in recorded_frames():
        command, described = decoded(frame), frame.described
        found: dict[str, Any] = {
            "code": command.code,
            "flag": command.flag,
            "opaque": command.opaque,
            "version": command.version,
            "language": LanguageCode(command.language or 0).name,
            "remark": command.remark,
            "serialize": command.serialize.name,
            "extFields": command.ext_fields,
            "bodyLength": len(command.body),
        }
        wanted = {name: described.get(name) for name in found}
        wanted["extFields"] = {name: str(value) for name, value in described["extFields"].items()}
        assert found == wanted, frame.name
        order = described.get("extOrder", list(described["extFields"]))
        assert list(command.ext_fields) == order, frame.name
        if command.body:
            assert zlib.crc32(command.body) == described["bodyCrc32"], frame.name


def test_frames_of_java_encode_to_the_same_bytes() -> None:
    for frame in recorded_frames():
        if frame.described["language"] == "JAVA":
            # Java says that there are no fields, or says nothing, as its code happened to be written.
            wanted = without_empty_fields(frame.data)
            assert encode_frame(decoded(frame)) == wanted, frame.name


def without_empty_fields(data: bytes) -> bytes:
    size = int.from_bytes(data[4:8]) & 0xFFFFFF
    if data[4] != SerializeType.JSON:
        return data
    header, body = data[8 : 8 + size].replace(b'"extFields":{},', b""), data[8 + size :]
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


def test_frames_of_other_clients_encode_to_the_same_meaning() -> None:
    for frame in recorded_frames():
        if frame.described["language"] != "JAVA":
            command = decoded(frame)
            again = decode(encode_frame(command)[4:])
            assert {name: getattr(again, name) for name in RemotingCommand.__slots__} == {
                name: getattr(command, name) for name in RemotingCommand.__slots__
            }, frame.name


def test_headers_hold_every_field_of_every_command() -> None:
    beside = {"ReqT", "AccessKey", "OnsChannel", "Signature", "MSG_REGION", "TRACE_ON", "_UNIQUE_KEY_QUERY"}
    foreign_booleans = {"0": "false", "1": "false"}
    for frame in recorded_frames():
        command = decoded(frame)
        request_code = frame.answers["code"] if frame.answers else command.code
        kind = (RESPONSE_HEADERS if command.is_response else REQUEST_HEADERS).get(request_code)
        if kind is None:
            assert command.ext_fields.keys() <= beside, frame.name
            continue
        try:
            header = command.header(kind)
        except HeaderFieldError:
            # Broken requests were answered with an error; errors carry no header.
            code = command.code if command.is_response else frame.answered
            assert code != ResponseCode.SUCCESS, frame.name
            continue
        fields = header.encode(request_code)
        for name, value in command.ext_fields.items():
            if name not in beside:
                is_boolean = fields[name] in {"true", "false"}
                wanted = foreign_booleans.get(value, value) if is_boolean else value
                assert fields[name] == (wanted.upper() if name == "boundaryType" else wanted), frame.name


def test_binary_headers_of_java_have_the_order_of_ours() -> None:
    in_order = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE}
    checked = 0
    for frame in recorded_frames():
        command = decoded(frame)
        request_code = frame.answers["code"] if frame.answers else command.code
        if command.serialize == SerializeType.JSON or request_code not in in_order or not command.ext_fields:
            continue
        if (
            request_code == RequestCode.PULL_MESSAGE
            and "bname" not in command.ext_fields
            and not command.is_response
        ):
            continue  # an old client's code, which has no order of its own
        kind = (RESPONSE_HEADERS if command.is_response else REQUEST_HEADERS)[request_code]
        try:
            fields = command.header(kind).encode(request_code)
        except HeaderFieldError:
            continue
        shared = [name for name in fields if name in command.ext_fields]
        assert shared == [name for name in command.ext_fields if name in fields], frame.name
        checked += 1
    assert checked > 300


def test_bodies_come_back_in_both_forms() -> None:
    unknown = set()
    for frame in recorded_frames():
        command = decoded(frame)
        code = frame.answers["code"] if frame.answers else command.code
        kind = (RESPONSE_BODIES if command.is_response else REQUEST_BODIES).get(code)
        if not command.body or code in BINARY_BODIES or (command.is_response and frame.answers is None):
            continue
        if kind is None:
            unknown.add(frame.name)
            continue
        try:
            value = decode_body(kind, command.body)
        except MalformedBodyError:
            assert command.body == UNFINISHED.get(frame.described["name"]), frame.name
            continue
        assert decode_body(kind, encode_body(value)) == value, frame.name
        assert decode_body(kind, encode_body(value, standard=True)) == value, frame.name
    assert not unknown


def test_bodies_of_java_encode_to_the_same_bytes() -> None:
    checked = 0
    for frame in recorded_frames():
        command = decoded(frame)
        is_java = command.version == 479 and command.language == LanguageCode.JAVA
        if not command.is_response or not is_java or not command.body or frame.answers is None:
            continue
        kind = RESPONSE_BODIES.get(frame.answers["code"])
        if kind is not None:
            value = decode_body(kind, command.body)
            reads_standard = frame.answers["code"] == RequestCode.GET_ROUTEINFO_BY_TOPIC
            standard = reads_standard and frame.answers["version"] >= 401
            assert encode_body(value, standard=standard) == command.body, frame.name
            checked += 1
    assert checked > 300
