"""What an operator asks of a broker and changes in it: as Java's broker answers, and only where it may."""

import os
from pathlib import Path
from typing import Any

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import Permission, TopicConfig
from pyledger.servers.namesrv.server import NameServer
from pyledger.wire import fastjson
from pyledger.wire.remoting.command import RemotingCommand, decode, encode_frame
from tests.golden.remoting_frames import RecordedFrame, recorded_frames
from tests.net.conftest import Run
from tests.net.peers import until
from tests.servers.broker.peers import WITH_SUBSCRIPTION, broker, heartbeat, make_request, peer, pull, send
from tests.servers.namesrv.peers import name_server

TIME_MS = 1_000_000_000_000
COMPARED = {
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
}
DIFFERING = {"physicOffset", "physicSize", "brokerAddr", "topicPutTps"}
NOT_SET = "not set any response code"
CHANGES = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: {"topic": "N", "defaultTopic": "", "perm": 6, "topicFilterType": ""}
    | {"readQueueNums": 1, "writeQueueNums": 1},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {},
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": "T"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": "G"},
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: {"topic": "T", "group": "G", "timestamp": 0},
    RequestCode.CLONE_GROUP_OFFSET: {"srcGroup": "G", "destGroup": "H", "topic": "T"},
    RequestCode.CONSUME_MESSAGE_DIRECTLY: {"consumerGroup": "G", "clientId": "c", "msgId": "0" * 32},
    RequestCode.TRIGGER_DELETE_FILES: {},
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: {},
    RequestCode.CLEAN_UNUSED_TOPIC: {},
    RequestCode.DELETE_EXPIRED_COMMITLOG: {},
    RequestCode.UPDATE_BROKER_CONFIG: {},
}


def read(answer: RemotingCommand) -> Any:
    """The body of an answer."""
    assert answer.code == 0, answer.remark
    return fastjson.parse(bytes(answer.body).decode())


def comparable(answer: RemotingCommand) -> Any:
    """An answer without what differs from run to run: times, addresses, places in the log."""
    body = fastjson.parse(bytes(answer.body).decode()) if len(answer.body) else None
    remark = None if answer.code == 0 and answer.remark == NOT_SET else answer.remark
    return answer.code, remark, masked(body)


def masked(value: Any) -> Any:
    """Numbers that are times become `time`."""
    if isinstance(value, dict):
        return {name: name if name in DIFFERING else masked(one) for name, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    return "time" if isinstance(value, int) and value > TIME_MS else value


def session(case: str) -> list[tuple[RecordedFrame, RecordedFrame | None]]:
    """Requests of the client to the broker in order, each with its recorded answer."""
    frames = [one for one in recorded_frames() if one.case == case]
    answers = {one.described["answers"]: one for one in frames if one.described.get("answers") is not None}
    return [
        (one, answers.get(one.described["n"]))
        for one in frames
        if one.described["from"] == "client" and one.described["to"] == "broker" and one.answers is None
    ]


@pytest.mark.parametrize("case", ["json-admin", "binary-admin"])
def test_operators_are_answered_as_java_answers(run: Run, tmp_path: Path, case: str) -> None:
    """Pulls are left out, and so the offsets that come of them are committed by hand as recorded."""

    async def main() -> tuple[int, list[str]]:
        differing, compared = [], 0
        async with broker(tmp_path, admin_enabled=True) as one, peer(one) as client:
            for request, answer in session(case):
                code = request.described["code"]
                if answer is None or code == RequestCode.PULL_MESSAGE:
                    if code == RequestCode.UPDATE_CONSUMER_OFFSET:
                        await client.send(request.data)
                    continue
                await client.send(request.data)
                ours = await client.receive()
                while ours.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                    ours = await client.receive()
                theirs = decode(answer.data[4:])
                if code in COMPARED:
                    compared += 1
                    if comparable(ours) != comparable(theirs):
                        differing.append(
                            f"{request.name}\n  ours   {comparable(ours)}\n  theirs {comparable(theirs)}"
                        )
        return compared, differing

    compared, differing = run(main())
    assert not differing, "\n".join(differing)
    assert compared == len(COMPARED)


@pytest.mark.parametrize("code", CHANGES, ids=lambda code: code.name)
def test_changes_are_rejected_unless_allowed(run: Run, tmp_path: Path, code: RequestCode) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            await client.request(send("T"))
            answer = await client.request(make_request(code, **CHANGES[code]))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "admin_enabled" in (answer.remark or "")
            assert one.context is not None
            assert one.context.tables.topics.find("T") is not None
            assert one.context.tables.topics.find("N") is None

    run(main())


def test_topic_is_made_changed_deleted(run: Run, tmp_path: Path) -> None:
    fields = {"topic": "T", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
    count = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6}

    async def main() -> None:
        async with broker(tmp_path, admin_enabled=True) as one, peer(one) as client:
            update = RequestCode.UPDATE_AND_CREATE_TOPIC
            made = await client.request(
                make_request(update, **fields, **count, attributes="+message.type=FIFO")
            )
            assert made.code == 0
            assert one.context is not None
            topics = one.context.tables.topics
            assert topics.find("T") == TopicConfig("T", 2, 2, attributes={"message.type": "FIFO"})
            changed = await client.request(make_request(update, **fields, **{**count, "perm": 4}))
            assert changed.code == 0
            assert topics.find("T").permission is Permission.READ  # type: ignore[union-attr]
            wrong = await client.request(make_request(update, **{**fields, "topic": "../../x"}, **count))
            assert wrong.code == ResponseCode.INVALID_PARAMETER
            page = await client.request(
                make_request(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=0, maxTopicNum=3)
            )
            assert len(read(page)["topicConfigTable"]) == 3
            assert page.ext_fields["totalTopicNum"] == str(len(topics.topics))
            await client.request(send("T"))
            gone = await client.request(make_request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))
            assert gone.code == 0
            assert topics.find("T") is None
            system = await client.request(make_request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="TBW102"))
            assert system.code == ResponseCode.INVALID_PARAMETER
            # Made again, its offsets go on: no offset stands for two messages.
            assert (await client.request(send("T"))).ext_fields["queueOffset"] == "1"

    run(main())


def test_next_pull_gets_the_reset_offset(run: Run, tmp_path: Path) -> None:
    reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    async def main() -> None:
        async with broker(tmp_path, admin_enabled=True) as one, peer(one) as client:
            for _ in range(3):
                await client.request(send("T"))
            await client.request(pull("T", flags=WITH_SUBSCRIPTION))
            outside = await client.request(
                make_request(reset, topic="T", group="G", queueId=0, offset=5, timestamp=0)
            )
            assert outside.code == ResponseCode.SYSTEM_ERROR
            unknown = await client.request(make_request(reset, topic="T", group="Nobody", timestamp=0))
            assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            done = await client.request(make_request(reset, topic="T", group="G", timestamp=-1))
            offsets = {
                fastjson.parse(str(queue))["queueId"]: offset
                for queue, offset in read(done)["offsetTable"].items()
            }
            assert offsets == {0: 3, 1: 0, 2: 0, 3: 0}
            moved = await client.request(pull("T"))
            assert (moved.remark, moved.ext_fields["nextBeginOffset"]) == ("OFFSET_RESET", "3")
            again = await client.request(pull("T"))
            assert (again.code, again.ext_fields["nextBeginOffset"]) == (0, "3")

    run(main())


def test_progress_of_a_group_and_what_the_broker_counted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            for _ in range(3):
                await client.request(send("T"))
            await client.request(heartbeat("c1", "T"))
            await client.receive()
            await client.request(pull("T"))
            commit = make_request(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId=0, commitOffset=1
            )
            assert (await client.request(commit)).code == 0
            stats = read(await client.request(make_request(RequestCode.GET_CONSUME_STATS, consumerGroup="G")))
            offsets = {
                fastjson.parse(str(queue))["queueId"]: (
                    one["brokerOffset"],
                    one["consumerOffset"],
                    one["pullOffset"],
                )
                for queue, one in stats["offsetTable"].items()
            }
            assert offsets == {0: (3, 1, 3), 1: (0, 0, 0), 2: (0, 0, 0), 3: (0, 0, 0)}
            everything = read(await client.request(make_request(RequestCode.GET_BROKER_CONSUME_STATS)))
            assert (everything["totalDiff"], everything["totalInflightDiff"]) == (2, 2)
            assert one.context is not None
            for second in range(10):
                one.context.counts.sample(20_000 + 1000 * second, 12)
            view = make_request(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T")
            assert read(await client.request(view))["statsMinute"]["sum"] == 3
            view = make_request(
                RequestCode.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="T@G"
            )
            assert read(await client.request(view))["statsDay"]["sum"] == 3
            view = make_request(RequestCode.VIEW_BROKER_STATS_DATA, statsName="Nothing", statsKey="T")
            assert (await client.request(view)).code == ResponseCode.SYSTEM_ERROR
            runtime = read(await client.request(make_request(RequestCode.GET_BROKER_RUNTIME_INFO)))["table"]
            assert (runtime["msgPutTotalTodayNow"], runtime["msgGetTotalTodayNow"]) == ("3", "3")
            assert runtime["brokerVersionDesc"] == "V5_3_3"
            assert runtime["getTransferedTps"] == runtime["getTransferredTps"]
            assert len(runtime["putTps"].split(" ")) == 3

    run(main())


def test_space_reserved_for_root_counts_as_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def reserving(path: str) -> os.statvfs_result:
        """Of 1,000 blocks 500 are free, 50 of them for root alone."""
        found = list(real(path))
        found[1:5] = 4096, 1000, 500, 450
        return os.statvfs_result(found)

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            monkeypatch.setattr(os, "statvfs", reserving)
            table = read(await client.request(make_request(RequestCode.GET_BROKER_RUNTIME_INFO)))["table"]
            monkeypatch.undo()
            assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "0.53"
            assert table["commitLogDirCapacity"] == "Total : 3.906 MiB, Free : 1.953 MiB."

    run(main())


def test_settings_list_paths_only_with_admin_enabled(run: Run, tmp_path: Path) -> None:
    async def shown(**settings: Any) -> str:
        async with broker(tmp_path, **settings) as one, peer(one) as client:
            return bytes((await client.request(make_request(RequestCode.GET_BROKER_CONFIG))).body).decode()

    for allowed in (False, True):
        text = run(shown(admin_enabled=allowed))
        assert "brokerName=broker-a\n" in text
        assert "flushDiskType=ASYNC_FLUSH\n" in text
        assert "brokerRole=ASYNC_MASTER\n" in text
        assert "messageDelayLevel=1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h\n" in text
        assert "msgTraceTopicName=RMQ_SYS_TRACE_TOPIC\n" in text
        assert "useTLS=false\n" in text
        assert ("storePathRootDir=" in text) is allowed


def test_request_to_a_client_is_forwarded(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as consumer, peer(one) as operator:
            await consumer.request(heartbeat("c1", "T"))
            await consumer.receive()
            wanted = make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="c1")
            wanted.opaque = 5
            await operator.send(encode_frame(wanted))
            forwarded = await consumer.receive()
            assert (forwarded.code, forwarded.ext_fields["clientId"]) == (wanted.code, "c1")
            await consumer.send(encode_frame(forwarded.response(0, body=b'{"properties":{}}')))
            answer = await operator.receive()
            assert (answer.opaque, bytes(answer.body)) == (5, b'{"properties":{}}')
            unknown = make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="c2")
            assert (await operator.request(unknown)).code == ResponseCode.SYSTEM_ERROR

    run(main())


def test_settings_change_within_limits_while_the_broker_runs(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            name_server(tmp_path) as server,
            broker(
                tmp_path,
                name_servers=server.address,
                admin_enabled=True,
                delivery={"auto_create_topics": False},
            ) as one,
            peer(one) as client,
        ):

            async def change(text: str) -> int:
                command = make_request(RequestCode.UPDATE_BROKER_CONFIG, text.encode())
                return (await client.request(command)).code

            assert (await client.request(send("T"))).code == ResponseCode.TOPIC_NOT_EXIST
            assert await change("autoCreateTopicEnable=true\ndefaultTopicQueueNums=2\n") == 0
            assert (await client.request(send("T"))).code == 0
            assert one.context is not None
            assert one.context.tables.topics.find("T").write_queue_count == 2  # type: ignore[union-attr]
            shown = bytes((await client.request(make_request(RequestCode.GET_BROKER_CONFIG))).body).decode()
            assert "autoCreateTopicEnable=true\n" in shown
            assert await change("autoCreateTopicEnable=false\n") == 0
            assert (await client.request(send("U"))).code == ResponseCode.TOPIC_NOT_EXIST
            # One that may not change, and nothing changes.
            for name in ("storePathRootDir", "rocketmqHome", "filterServerNums", "configBlackList"):
                assert (
                    await change(f"autoCreateTopicEnable=true\n{name}=/tmp/x\n") == ResponseCode.NO_PERMISSION
                )
            assert await change("brokerPermission=9\n") == ResponseCode.INVALID_PARAMETER
            assert (await client.request(send("U"))).code == ResponseCode.TOPIC_NOT_EXIST
            # The name server hears of what clients may do with it.
            assert await change("brokerPermission=4\n") == 0
            await until(lambda: permission_of(server, "T") == 4)

    run(main())


def permission_of(server: NameServer, topic: str) -> int:
    """What a name server says may be done with a topic."""
    found = server.routes.route(topic)
    return int(found.queues[0].permission) if found else -1
