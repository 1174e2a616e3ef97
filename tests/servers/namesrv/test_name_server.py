"""A name server on loopback: registrations of brokers, changes by operators, notices to brokers."""

import asyncio
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig
from pyledger.errors import ConfigError, ListenError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import DataVersion
from pyledger.net.remoting.server import RemotingServer
from pyledger.servers.namesrv import processor as processor_module
from pyledger.servers.namesrv import server as namesrv_server
from pyledger.servers.namesrv.server import NameServer
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import until
from tests.servers.broker.peers import make_request
from tests.servers.namesrv.peers import name_server, peer, registration, topics_of

CHANGES = [
    make_request(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v"),
    make_request(RequestCode.DELETE_KV_CONFIG, namespace="N", key="k"),
    make_request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a"),
    make_request(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a"),
    make_request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="Orders"),
    make_request(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true"),
]
BROKER = {"brokerName": "broker-a", "clusterName": "C", "brokerAddr": "127.0.0.1:10911", "brokerId": "0"}
CLUSTERS = make_request(RequestCode.GET_BROKER_CLUSTER_INFO)
KV_LIST = make_request(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N")
KV_VALUE = make_request(RequestCode.GET_KV_CONFIG, namespace="N", key="k")
CONFIG = make_request(RequestCode.GET_NAMESRV_CONFIG)
EMPTY = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def route(topic: str, version: int = 479, **fields: str) -> RemotingCommand:
    command = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **fields)
    command.version = version
    return command


def test_changes_are_rejected_until_they_are_enabled(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            assert (await client.request(registration())).code == 0
            before = server.routes.describe(0).partition("live")[0]
            for command in CHANGES:
                answer = await client.request(command)
                assert (answer.code, "admin_enabled" in (answer.remark or "")) == (
                    ResponseCode.NO_PERMISSION,
                    True,
                )
            assert server.routes.describe(0).partition("live")[0] == before
            assert (await client.request(KV_LIST)).code == 22

        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as client:
            for command in CHANGES:
                assert (await client.request(command)).code == 0, command

    run(main())


@pytest.mark.parametrize(
    ("version", "fields", "start"),
    [
        (479, {}, b'{"0":"127.0.0.1:10911"}'),
        (401, {}, b'{"0":"127.0.0.1:10911"}'),
        (399, {}, b'{0:"127.0.0.1:10911"}'),
        (399, {"acceptStandardJsonOnly": "true"}, b'{"0":"127.0.0.1:10911"}'),
        (479, {"__ZONE_MODE": "true", "__ZONE_NAME": "north"}, b'{0:"127.0.0.1:10911"}'),
        (479, {"__ZONE_MODE": "true", "__ZONE_NAME": "south"}, None),
        (479, {"__ZONE_MODE": "false", "__ZONE_NAME": "south"}, b'{"0":"127.0.0.1:10911"}'),
        (479, {"__ZONE_MODE": "true", "__ZONE_NAME": " "}, b'{"0":"127.0.0.1:10911"}'),
    ],
)
def test_route_takes_the_form_that_the_client_reads(
    run: Run, tmp_path: Path, version: int, fields: dict[str, str], start: bytes | None
) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            await client.request(registration(fields={"__ZONE_NAME": "north"}))
            body = bytes((await client.request(route("Orders", version, **fields))).body)
            assert body.startswith(b'{"brokerDatas":[')
            assert start in body if start else b"broker-a" not in body

    run(main())


def test_registration_is_checked_and_may_be_compressed_or_old(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            broken = await client.request(registration(body_crc32=7))
            assert (broken.code, broken.remark) == (1, "crc32 not match")
            unchecked = registration(body_crc32=0)
            unchecked.body = b"{"
            assert (await client.request(unchecked)).code == 1
            assert (await client.request(registration(topics=("Alone",)))).remark == "register broker failed"
            nothing = registration(body_crc32=0)
            nothing.body = b""
            assert (await client.request(nothing)).code == 0
            old = registration(body_crc32=0)
            old.version = 36
            old.body = (
                b'{"topicConfigTable":{"Old":{"perm":6,"topicName":"Old"}},"dataVersion":{"counter":9}}'
            )
            assert (await client.request(old)).code == 0
            assert topics_of(server) == ["Old"]
            version = b'{"counter":10,"stateVersion":0,"timestamp":1}'
            content = b"".join(
                len(part).to_bytes(4, "big") + part if isinstance(part, bytes) else part.to_bytes(4, "big")
                for part in (version, 1, b"Packed 4 4 6 SINGLE_TAG", b"[]", 0)
            )
            small = registration(body_crc32=0, compressed=True)
            small.body = zlib.compress(content)
            assert (await client.request(small)).code == 0
            assert topics_of(server) == ["Old", "Packed"]

    run(main())


def test_registration_that_decompresses_to_too_many_bytes_is_rejected(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            bomb = registration(body_crc32=0, compressed=True)
            bomb.body = zlib.compress(bytes(300 << 20), 9)
            answer = await client.request(bomb)
            assert answer.code == 1
            assert (await client.request(CLUSTERS)).body == EMPTY

    run(main())


def test_broker_is_removed_with_its_connection_but_not_with_that_of_a_client(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            async with peer(server) as broker:
                await broker.request(registration())
                async with peer(server) as passer_by:
                    await passer_by.request(CLUSTERS)
                assert (await client.request(route("Orders"))).code == 0
            await until(lambda: not topics_of(server))
            assert bytes((await client.request(CLUSTERS)).body) == EMPTY

    run(main())


def test_all_brokers_of_a_connection_are_removed_with_it(run: Run, tmp_path: Path) -> None:
    """More than the queue of unregistrations takes, with one unregistered before, whatever their timeouts."""

    async def main() -> None:
        async with name_server(tmp_path, unregister_queue_capacity=2) as server:
            async with peer(server) as broker:
                for number in range(20):
                    request = registration(
                        f"h:{number}", broker_name=f"b{number}", heartbeat_timeout_millis=1 << 60
                    )
                    assert (await broker.request(request)).code == 0
                leaving = BROKER | {"brokerName": "b0", "brokerAddr": "h:0"}
                await broker.request(make_request(RequestCode.UNREGISTER_BROKER, **leaving))
                assert len(server.routes.clusters().brokers) == 19
            await until(lambda: server.routes.describe(0) == "empty")

    run(main())


def test_broker_that_falls_silent_is_removed_and_its_connection_closed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namesrv_server, "FIRST_SCAN_MS", 10)

    async def main() -> None:
        async with name_server(tmp_path, scan_interval_ms=10) as server, peer(server) as broker:
            await broker.request(registration(heartbeat_timeout_millis=50))
            assert await broker.ended()
            await until(lambda: not topics_of(server))

    run(main())


def test_unregistered_broker_is_gone_with_the_next_request(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path, unregister_queue_capacity=1) as server, peer(server) as client:
            await client.request(registration())
            assert (await client.request(make_request(RequestCode.UNREGISTER_BROKER, **BROKER))).code == 0
            assert bytes((await client.request(CLUSTERS)).body) == EMPTY

    run(main())


def test_data_version_is_compared_and_heartbeats_are_taken(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            same = make_request(
                RequestCode.QUERY_DATA_VERSION, b'{"counter":1,"stateVersion":0,"timestamp":1000}', **BROKER
            )
            answer = await client.request(same)
            assert (answer.ext_fields, bytes(answer.body)) == ({"changed": "true"}, b"")
            await client.request(registration())
            answer = await client.request(same)
            assert answer.ext_fields == {"changed": "false"}
            assert bytes(answer.body) == b'{"counter":1,"stateVersion":0,"timestamp":1000}'
            assert (await client.request(make_request(RequestCode.BROKER_HEARTBEAT, **BROKER))).code == 0

    run(main())


def test_members_are_notified_of_a_new_smallest_id(run: Run, tmp_path: Path) -> None:
    async def main() -> list[dict[str, str]]:
        notified: list[dict[str, str]] = []

        def take_notice(_connection: Any, request: RemotingCommand) -> None:
            assert request.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
            assert request.is_oneway
            notified.append(request.ext_fields)

        slave = RemotingServer(take_notice, config=NetConfig())
        await slave.start()
        address = f"127.0.0.1:{slave.port}"
        async with name_server(tmp_path, notify_min_broker_id_changed=True) as server, peer(server) as client:
            await client.request(registration(address, broker_id=1, enable_acting_master=True))
            async with peer(server) as master:
                await master.request(registration("127.0.0.1:1", enable_acting_master=True))
                await until(lambda: len(notified) == 1)
            await until(lambda: len(notified) == 2)
        await slave.close()
        come, gone = notified
        assert come == {"minBrokerId": "0", "minBrokerAddr": "127.0.0.1:1", "haBrokerAddr": "127.0.0.1:10912"}
        assert gone == {"minBrokerId": "1", "minBrokerAddr": address, "offlineBrokerAddr": "127.0.0.1:1"}
        return notified

    run(main())


def test_unreachable_member_does_not_matter(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path, notify_min_broker_id_changed=True) as server, peer(server) as client:
            await client.request(registration("127.0.0.1:1", broker_id=1))
            await client.request(registration("127.0.0.1:2"))
            assert (await client.request(CLUSTERS)).code == 0

    run(main())


def test_order_topics_reach_brokers_and_clients_where_switched_on(run: Run, tmp_path: Path) -> None:
    put = make_request(
        RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="Orders", value="broker-a:4"
    )

    async def main(**settings: Any) -> tuple[bytes, bool]:
        async with name_server(tmp_path, admin_enabled=True, **settings) as server, peer(server) as client:
            assert (await client.request(put)).code == 0
            answer = await client.request(registration())
            found = await client.request(route("Orders"))
            return bytes(answer.body), b'"orderTopicConf":"broker-a:4"' in bytes(found.body)

    assert run(main()) == (b'{"table":{"Orders":"broker-a:4"}}', False)
    assert run(main(orderMessageEnable=True)) == (b'{"table":{"Orders":"broker-a:4"}}', True)
    assert run(main(return_order_topic_config_to_broker=False)) == (b"", False)


def test_lists_can_be_switched_off_and_routes_wait_for_brokers(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"enable_all_topic_list": False, "enable_topic_list": False, "need_wait_for_service": True}
        async with name_server(tmp_path, **settings) as server, peer(server) as client:
            for code, fields in (
                (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
                (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}),
                (RequestCode.GET_UNIT_TOPIC_LIST, {}),
            ):
                answer = await client.request(make_request(code, **fields))
                assert (answer.code, answer.remark) == (1, "disable")
            answer = await client.request(route("Orders"))
            assert (answer.code, answer.remark) == (1, "name server not ready")

    run(main())


def test_settings_are_shown_and_changed_within_limits(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as client:

            async def change(text: str) -> int:
                return (
                    await client.request(make_request(RequestCode.UPDATE_NAMESRV_CONFIG, text.encode()))
                ).code

            text = bytes((await client.request(CONFIG)).body)
            assert b"orderMessageEnable=false\n" in text
            assert b"serverChannelMaxIdleTimeSeconds=120\n" in text
            assert b"clientChannelMaxIdleTimeSeconds" not in text
            assert await change("orderMessageEnable=true\nscanNotActiveBrokerInterval=77") == 0
            assert b"orderMessageEnable=true\n" in bytes((await client.request(CONFIG)).body)
            assert server.routes.config.scan_interval_ms == 77
            assert await change("kvConfigPath=/tmp/x") == ResponseCode.NO_PERMISSION
            assert await change("configBlackList=") == ResponseCode.NO_PERMISSION
            assert await change("listenPort=1") == ResponseCode.NO_PERMISSION
            assert await change("unheardOf=1") == ResponseCode.NO_PERMISSION
            assert await change("orderMessageEnable=maybe") == ResponseCode.SYSTEM_ERROR
            assert await change("orderMessageEnable=\\u1") == ResponseCode.SYSTEM_ERROR
            assert server.routes.config.scan_interval_ms == 77

    run(main())


def test_paths_are_shown_to_operators_only(run: Run, tmp_path: Path) -> None:
    async def main(**settings: Any) -> bool:
        async with name_server(tmp_path, **settings) as server, peer(server) as client:
            return b"\nkvConfigPath=" in bytes((await client.request(CONFIG)).body)

    assert not run(main())
    assert run(main(admin_enabled=True))


def test_topic_is_registered_by_itself(run: Run, tmp_path: Path) -> None:
    body = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,"writeQueueNums":2}]}'

    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            await client.request(registration())
            command = make_request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="Single")
            assert (await client.request(command)).code == 0
            assert topics_of(server) == ["Orders", "Single", "TBW102"]

    run(main())


def test_missing_field_and_unknown_code_are_answered(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client:
            answer = await client.request(make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC))
            assert answer.code == 1
            assert "topic" in (answer.remark or "")
            answer = await client.request(RemotingCommand.request(9999))
            assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
            assert (await client.request(CLUSTERS)).code == 0

    run(main())


def test_address_that_is_taken_is_named(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server:
            port = int(server.address.rpartition(":")[2])
            other = NameServer(NamesrvConfig(port=port, kv_config_path=str(tmp_path / "kv.json")))
            with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}"):
                await other.start()
            await other.close()

    run(main())


def test_key_value_table_outlives_the_name_server(run: Run, tmp_path: Path) -> None:
    async def write() -> None:
        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as client:
            for value in ("1", "2"):
                await client.request(
                    make_request(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value=value)
                )
            await client.request(
                make_request(RequestCode.PUT_KV_CONFIG, namespace="N", key="gone", value="x")
            )
            await client.request(make_request(RequestCode.DELETE_KV_CONFIG, namespace="N", key="gone"))

    async def read() -> bytes:
        async with name_server(tmp_path) as server, peer(server) as client:
            return bytes((await client.request(KV_LIST)).body)

    run(write())
    file = tmp_path / "kv" / "kvConfig.json"
    assert file.read_text() == '{"configTable":{"N":{"k":"2"}}}'
    assert run(read()) == b'{"table":{"k":"2"}}'
    file.write_text("{")
    assert run(read()) == b'{"table":{"k":"2","gone":"x"}}', "the .bak holds what was before"
    file.with_name("kvConfig.json.bak").write_text('{"configTable":[]}')
    with pytest.raises(ConfigError, match=r"kvConfig\.json: is no key-value table"):
        run(read())


def test_key_value_change_that_cannot_be_written_is_not_seen(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file where a folder should be")

    async def main() -> None:
        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as client:
            put = make_request(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v")
            answer = await client.request(put)
            assert answer.code == 1
            assert "cannot be written" in (answer.remark or "")
            assert (await client.request(KV_VALUE)).code == 22

    run(main())


def test_repeated_registration_is_read_once_and_any_change_is_seen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    decoded = processor_module.decoded_content

    def counted(request: RemotingCommand, broker_name: str, compressed: bool) -> Any:
        read.append(broker_name)
        return decoded(request, broker_name, compressed)

    monkeypatch.setattr(processor_module, "decoded_content", counted)

    async def main() -> None:
        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as client:
            for stamp in (b"1", b"22"):
                again = registration(body_crc32=0)
                mapping = b',"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":' + stamp + b"}"
                again.body = bytes(again.body).replace(
                    b',"topicConfigTable"', mapping + b',"topicConfigTable"'
                )
                assert b"mappingDataVersion" in again.body
                assert (await client.request(again)).code == 0
            assert read == ["broker-a"], "only a timestamp differs that is not used"
            await client.request(make_request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="Orders"))
            assert (await client.request(route("Orders"))).code == ResponseCode.TOPIC_NOT_EXIST
            assert (await client.request(again)).code == 0
            assert (await client.request(route("Orders"))).code == 0, (
                "a deleted topic comes back as with Java"
            )
            assert read == ["broker-a"]
            version = DataVersion(counter=2, timestamp_ms=1000)
            assert (await client.request(registration(topics=("Other", "TBW102"), version=version))).code == 0
            assert read == ["broker-a"] * 2
            assert topics_of(server) == ["Orders", "Other", "TBW102"]

    run(main())


def test_routes_are_encoded_again_after_every_change(run: Run, tmp_path: Path) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders"}

    async def main() -> None:
        async with name_server(tmp_path, admin_enabled=True) as server, peer(server) as client:

            async def found() -> bytes:
                return bytes((await client.request(route("Orders"))).body)

            await client.request(registration())
            assert await found() == await found() != b""
            seen = [await found()]
            for change in (
                registration("127.0.0.1:10921", broker_id=1),
                make_request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a"),
                make_request(RequestCode.PUT_KV_CONFIG, **order, value="broker-a:4"),
                make_request(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true"),
                make_request(RequestCode.PUT_KV_CONFIG, **order, value="broker-a:5"),
                make_request(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=false"),
                make_request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="Orders"),
            ):
                assert (await client.request(change)).code == 0
                seen.append(await found())
            assert [b"broker-a:5" in body for body in seen] == [False] * 5 + [True, False, False]
            assert seen[2] == seen[3] == seen[6]
            assert len({*seen}) == 6
            assert seen[-1] == b""

    run(main())


def test_large_registration_is_read_while_others_are_answered(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, begun = threading.Event(), threading.Event()
    decoded = processor_module.decoded_content

    def held(request: RemotingCommand, broker_name: str, compressed: bool) -> Any:
        begun.set()
        may_go_on.wait(100)
        return decoded(request, broker_name, compressed)

    monkeypatch.setattr(processor_module, "decoded_content", held)
    many = tuple(f"Topic{number}" for number in range(2_000))

    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client, peer(server) as broker:
            await broker.send(encode_frame(registration(topics=many)))
            async with peer(server) as goner:
                await goner.send(encode_frame(registration("127.0.0.1:2", broker_name="goner", topics=many)))
                await until(begun.is_set)
                assert bytes((await client.request(CLUSTERS)).body) == EMPTY
            await client.request(CLUSTERS)
            may_go_on.set()
            assert (await broker.receive()).code == 0
            await until(lambda: len(topics_of(server)) == len(many))
            assert list(server.routes.clusters().brokers) == ["broker-a"]
            # What the broker that has gone had sent is still being read.
            await until(lambda: not any("_register_later" in repr(task) for task in asyncio.all_tasks()))

    run(main())
