"""Requests are signed by users who may do what they ask for; nobody else gets anything."""

import asyncio
import json
from pathlib import Path

import pytest

from pyledger.errors import ConfigError
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.addresses import address_of
from pyledger.servers.broker.auth.admin_gate import is_loopback
from pyledger.servers.broker.auth.auth_file import WatchedRules, read_rules
from pyledger.servers.broker.server import Broker
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat, ProducerEntry
from pyledger.wire.remoting.bodies.pop import BatchAck, BatchAckRequest, encode_bit_set
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.signature import ACCESS_KEY, SIGNATURE, sign
from tests.net.conftest import Run
from tests.net.peers import until
from tests.servers.broker.peers import broker, heartbeat, make_request, peer, pull, send
from tests.servers.broker.test_transactions import LateClock, check

POLICIES = """
[[users]]
username = "root"
password = "root-secret"
userType = "Super"
[[users]]
username = "alice"
password = "alice-secret"
[[users]]
username = "gone"
password = "gone-secret"
userStatus = "disable"
[[acls]]
subject = "User:alice"
[[acls.policies]]
entries = [
  {resource = "Topic:T", actions = ["Pub", "Sub"], decision = "Allow"},
  {resource = "Group:G", actions = ["Sub"], decision = "Allow"},
]
"""
ACCOUNTS = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: rocketmq-root
    secretKey: root-secret
    admin: true
  - accessKey: rocketmq-alice
    secretKey: alice-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: ["T=PUB|SUB"]
    groupPerms: ["G=SUB"]
"""
TOPIC = {"topic": "T", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "perm": 6}
CREATE = make_request(RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC, readQueueNums=1, writeQueueNums=1)


def signed(command: RemotingCommand, user: str, secret: str) -> RemotingCommand:
    """A copy of a request that a user has signed."""
    fields = {**command.ext_fields, ACCESS_KEY: user}
    fields[SIGNATURE] = sign(fields, command.body, secret)
    return RemotingCommand.request(command.code, body=command.body, ext_fields=fields)


@pytest.mark.parametrize(("form", "prefix"), [("acl.toml", ""), ("plain_acl.yml", "rocketmq-")])
def test_users_do_what_they_may(run: Run, tmp_path: Path, form: str, prefix: str) -> None:
    path = tmp_path / form
    path.write_text(POLICIES if form == "acl.toml" else ACCOUNTS)
    path.chmod(0o600)
    root, alice = (f"{prefix}root", "root-secret"), (f"{prefix}alice", "alice-secret")

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path), admin_enabled=True) as one, peer(one) as client:

            async def code(command: RemotingCommand) -> int:
                return (await client.request(command)).code

            denied = ResponseCode.NO_PERMISSION
            assert await code(send("T")) == denied
            assert await code(signed(send("T"), *alice)) == 0
            assert await code(signed(send("T"), alice[0], "wrong")) == denied
            assert await code(signed(send("T"), "nobody", "")) == denied
            assert await code(signed(send("Other"), *alice)) == denied
            assert await code(signed(pull("T"), *alice)) == 0
            assert await code(signed(pull("T", consumer_group="H"), *alice)) == denied
            assert await code(signed(heartbeat("c", "Other"), *alice)) == denied
            assert await code(heartbeat("c", "T")) == denied
            assert await code(signed(CREATE, *alice)) == denied
            assert await code(CREATE) == denied
            assert await code(signed(CREATE, *root)) == 0
            # Not even what there is may be told.
            assert await code(make_request(RequestCode.GET_ALL_TOPIC_CONFIG)) == denied
            assert await code(signed(make_request(RequestCode.GET_ALL_TOPIC_CONFIG), *root)) == 0
            assert one.context is not None
            assert one.store.queue_range("Other", 0).max_offset == 0
            assert one.store.queue_range("T", 0).max_offset == 1

    run(main())


def test_signature_covers_every_field_and_the_body(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(POLICIES)
    path.chmod(0o600)
    whole = signed(send("T", b"body"), "alice", "alice-secret")

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path)) as one, peer(one) as client:
            changed = [
                {**whole.ext_fields, name: value + "1"}
                for name, value in whole.ext_fields.items()
                if name != SIGNATURE
            ]
            forged = [RemotingCommand.request(whole.code, body=b"body", ext_fields=one) for one in changed]
            forged.append(RemotingCommand.request(whole.code, body=b"bodY", ext_fields=whole.ext_fields))
            for command in forged:
                assert (await client.request(command)).code == ResponseCode.NO_PERMISSION
            assert (await client.request(whole)).code == 0
            # A disabled user's right signature opens nothing.
            gone = signed(send("T"), "gone", "gone-secret")
            assert (await client.request(gone)).code == ResponseCode.NO_PERMISSION

    run(main())


def test_old_clients_sign_before_they_mark_a_query_by_unique_key(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(POLICIES)
    path.chmod(0o600)
    fields = {"topic": "T", "key": "U1", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1 << 50}

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path)) as one, peer(one) as client:
            await client.request(signed(send("T"), "alice", "alice-secret"))
            query = signed(make_request(RequestCode.QUERY_MESSAGE, **fields), "alice", "alice-secret")
            query.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
            query.version = 401
            assert (await client.request(query)).code == ResponseCode.NO_PERMISSION
            query.version = 399
            assert (await client.request(query)).code == 0

    run(main())


def test_rules_see_an_address_in_one_form_only() -> None:
    for text, address in (
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
        ("::ffff:10.0.0.1:80", "10.0.0.1"),
        ("[fe80::1%eth0]:80", "fe80::1"),
        ("[0:0:0:0:0:0:0:1]:80", "::1"),
    ):
        assert address_of(text) == (address, 80)


@pytest.mark.parametrize(
    ("address", "local"), [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("10.0.0.1", False)]
)
def test_changes_without_signatures_come_from_this_machine(address: str, local: bool) -> None:
    assert is_loopback(address) is local


def test_file_that_cannot_be_understood_stops_the_broker(tmp_path: Path) -> None:
    for name, text, problem in (
        ("a.toml", "users = 1", "another form"),
        ("b.json", "[", "cannot be read"),
        ("c.yml", "a: [", "not YAML"),
        ("d.yml", "- a", "no table"),
        ("e.txt", "", "unknown ending"),
        ("f.yml", "a: !!python/object/apply:os.system ['true']", "not YAML"),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            read_rules(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rules(tmp_path / "missing.toml")


def test_changed_file_takes_effect(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    alice = ("rocketmq-alice", "alice-secret")

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path)) as one, peer(one) as client:

            async def becomes(topic: str, code: int) -> None:
                while (await client.request(signed(send(topic), *alice))).code != code:
                    await asyncio.sleep(0.02)

            await becomes("T", 0)
            path.write_text(ACCOUNTS.replace('"T=PUB|SUB"', '"Other=PUB|SUB"'))
            await becomes("Other", 0)
            await becomes("T", ResponseCode.NO_PERMISSION)
            path.write_text(ACCOUNTS)
            await becomes("T", 0)

    run(main())


def test_file_that_cannot_be_understood_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    rules = WatchedRules(path)
    assert not rules.refresh()
    for text in ("accounts: 7", "accounts: [", None):
        path.unlink() if text is None else path.write_text(text)
        assert not rules.refresh()
        assert rules.user("rocketmq-alice") is not None
    path.write_text("accounts: []")
    assert rules.refresh()
    assert rules.user("rocketmq-alice") is None


def test_operator_changes_users_and_policies(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text('{"users": [{"username": "root", "password": "root-secret", "userType": "Super"}]}')
    path.chmod(0o600)
    root, alice = ("root", "root-secret"), ("alice", "alice-secret")
    rule = (
        b'{"policies": [{"policyType": "Custom", "entries": '
        b'[{"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}]}]}'
    )

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path), admin_enabled=True) as one, peer(one) as client:

            async def ask(code: RequestCode, who: tuple[str, str], body: bytes = b"", **fields: str) -> bytes:
                answer = await client.request(signed(make_request(code, body, **fields), *who))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                return bytes(answer.body)

            user = {"username": "alice"}
            assert await ask(RequestCode.AUTH_GET_USER, root, **user) == b""
            await ask(RequestCode.AUTH_CREATE_USER, root, b'{"password":"alice-secret"}', **user)
            denied = await client.request(signed(send("T"), *alice))
            assert denied.code == ResponseCode.NO_PERMISSION
            await ask(RequestCode.AUTH_CREATE_ACL, root, rule, subject="User:alice")
            assert (await client.request(signed(send("T"), *alice))).code == 0
            assert json.loads(await ask(RequestCode.AUTH_LIST_USER, root))[1] == {
                **user,
                "password": "alice-secret",
                "userType": "Normal",
                "userStatus": "enable",
            }
            # A user without permission to change the cluster changes and reads nothing.
            for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_DELETE_USER):
                answer = await client.request(signed(make_request(code, **user), *alice))
                assert answer.code == ResponseCode.NO_PERMISSION
            # Many at once: none is lost.
            await asyncio.gather(*(one_more(one, f"u{number}", root) for number in range(8)))
            assert path.stat().st_mode & 0o777 == 0o600
            assert [one.name for one in tmp_path.iterdir() if one.name.startswith("users")] == ["users.json"]
        async with broker(tmp_path, acl_path=str(path), admin_enabled=True) as one, peer(one) as client:
            assert (await client.request(signed(send("T"), *alice))).code == 0
            assert len(json.loads(await ask(RequestCode.AUTH_LIST_USER, root, filter="u"))) == 8
            await ask(RequestCode.AUTH_DELETE_USER, root, **user)
            assert (await client.request(signed(send("T"), *alice))).code == ResponseCode.NO_PERMISSION
            assert await ask(RequestCode.AUTH_LIST_ACL, root) == b""

    async def one_more(one: Broker, name: str, who: tuple[str, str]) -> None:
        async with peer(one) as client:
            request = make_request(RequestCode.AUTH_CREATE_USER, b'{"password":"p"}', username=name)
            assert (await client.request(signed(request, *who))).code == 0

    run(main())


def test_file_that_people_write_is_not_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(POLICIES)
    path.chmod(0o600)
    request = make_request(RequestCode.AUTH_DELETE_USER, username="alice")

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path), admin_enabled=True) as one, peer(one) as client:
            answer = await client.request(signed(request, "root", "root-secret"))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert ".json" in str(answer.remark)
        assert path.read_text() == POLICIES
        async with broker(tmp_path, admin_enabled=True) as one, peer(one) as client:
            answer = await client.request(request)
            assert (answer.code, "acl_path" in str(answer.remark)) == (ResponseCode.NO_PERMISSION, True)

    run(main())


BOB = ("bob", "bob-secret")
TWO_USERS = (
    POLICIES
    + """
[[users]]
username = "bob"
password = "bob-secret"
[[acls]]
subject = "User:bob"
[[acls.policies]]
entries = [
  {resource = "Topic:B", actions = ["Pub", "Sub"], decision = "Allow"},
  {resource = "Group:H", actions = ["Sub"], decision = "Allow"},
]
"""
)


TWO_ACCOUNTS = (
    ACCOUNTS
    + """
  - accessKey: rocketmq-bob
    secretKey: bob-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: ["B=PUB|SUB"]
    groupPerms: ["H=SUB"]
"""
)
EVERYTHING = {
    **TOPIC,
    **dict.fromkeys(("consumerGroup", "group", "groupName", "srcGroup"), "G"),
    **dict.fromkeys(("queueId", "offset", "queueOffset", "index", "beginTimestamp", "pollTime"), 0),
    **dict.fromkeys(("bornTime", "initMode", "timestamp", "delayLevel", "commitOffset", "subVersion"), 0),
    **dict.fromkeys(("maxNum", "maxMsgNums", "count"), 32),
    "key": "secret",
    "endTimestamp": 1 << 50,
    "clientId": "c",
    "invisibleTime": 1000,
    "exp": "*",
    "subscription": "*",
    "expressionType": "TAG",
    "expType": "TAG",
    "sysFlag": 4,
    "order": "false",
    "suspendTimeoutMillis": 0,
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "b": "T",
    "destGroup": "H",
}
"""A field of each name that a request for messages has."""


@pytest.mark.parametrize(
    ("form", "text", "prefix"),
    [("acl.toml", TWO_USERS, ""), ("plain_acl.yml", TWO_ACCOUNTS, "rocketmq-")],
    ids=["users", "accounts"],
)
def test_no_request_gives_the_messages_of_a_foreign_topic(
    run: Run, tmp_path: Path, form: str, text: str, prefix: str
) -> None:
    """Bob asks for Alice's message by every code, with each of the names left out in turn."""
    path = tmp_path / form
    path.write_text(text)
    path.chmod(0o600)
    alice, bob = (f"{prefix}alice", "alice-secret"), (f"{prefix}bob", "bob-secret")
    named = ("consumerGroup", "group", "groupName", "topic")

    async def main() -> None:
        async with broker(tmp_path, acl_path=str(path), admin_enabled=True) as one, peer(one) as client:
            mine = signed(send("T", b"for alice", properties={"KEYS": "secret"}), *alice)
            message_id = (await client.request(mine)).ext_fields["msgId"]
            places = {**EVERYTHING, "msgId": message_id}
            await until(lambda: one.store.query("T", "secret"))

            async def asks(user: tuple[str, str]) -> set[int]:
                gave = set()
                for code in RequestCode:
                    for missing in ("", *named):
                        fields = {name: value for name, value in places.items() if name != missing}
                        answer = await client.request(signed(make_request(code, b"{}", **fields), *user))
                        if b"for alice" in bytes(answer.body):
                            gave.add(code)
                return gave

            assert await asks(bob) == set()
            reading = {RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.PULL_MESSAGE}
            assert await asks(alice) >= reading | {RequestCode.POP_MESSAGE}

    run(main())


def test_only_who_may_send_is_asked_about_a_transaction(run: Run, tmp_path: Path) -> None:
    """Bob says to be a producer of Alice's group; the question, which has the message, goes to Alice."""
    path = tmp_path / "acl.toml"
    path.write_text(TWO_USERS)
    path.chmod(0o600)
    says = Heartbeat(client_id="p", producer_data_set=(ProducerEntry(group_name="P"),))
    producing = RemotingCommand.request(RequestCode.HEART_BEAT, body=says.encode())
    clock = LateClock()
    waits = {"properties": {"TRAN_MSG": "true", "PGROUP": "P"}, "born_timestamp": clock.now_ms()}
    half = send("T", b"half", sys_flag=4, **waits)

    async def main() -> None:
        async with (
            broker(tmp_path, acl_path=str(path), clock=clock) as one,
            peer(one) as his,
            peer(one) as hers,
        ):
            assert (await hers.request(signed(half, "alice", "alice-secret"))).code == 0
            assert (await his.request(signed(producing, *BOB))).code == 0
            clock.ahead_ms += 7_000
            await check(one)
            assert (await hers.request(signed(producing, "alice", "alice-secret"))).code == 0
            for _ in range(3):
                clock.ahead_ms += 7_000
                await check(one)
                assert (await hers.receive()).code == RequestCode.CHECK_TRANSACTION_STATE
            # What comes next to Bob is what he has asked for.
            assert (await his.request(signed(producing, *BOB))).code == 0
            assert (await his.request(signed(send("B"), *BOB))).code == 0

    run(main())


def test_permissions_of_the_destination_are_checked(run: Run, tmp_path: Path) -> None:
    """Bob may do all with topic B as group H, and reaches T by none of the roads that name it elsewhere."""
    path = tmp_path / "acl.toml"
    path.write_text(TWO_USERS)
    path.chmod(0o600)
    alice = ("alice", "alice-secret")

    async def main() -> None:
        rules = {"recall": True}
        async with broker(tmp_path, acl_path=str(path), delivery=rules) as one, peer(one) as client:

            async def answer(command: RemotingCommand, user: tuple[str, str]) -> RemotingCommand:
                return await client.request(signed(command, *user))

            half = {"TRAN_MSG": "true", "PGROUP": "P"}
            assert (await answer(send("T", b"mine"), alice)).code == 0
            sent = await answer(send("T", b"half", properties=half, sys_flag=4), alice)
            timer = await answer(send("T", b"later", properties={"TIMER_DELAY_MS": "60000"}), alice)
            assert (await answer(send("B", b"his"), BOB)).code == 0
            where = int(sent.ext_fields["msgId"][16:], 16)
            place = {"tranStateTableOffset": sent.ext_fields["queueOffset"], "commitLogOffset": where}
            ack = BatchAck(consumer_group="G", topic="T", pop_time=1, bit_set=encode_bit_set([0]))
            roads = [
                make_request(RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="H", delayLevel=0),
                *(
                    make_request(
                        RequestCode.END_TRANSACTION,
                        producerGroup="P",
                        msgId="U",
                        commitOrRollback=how,
                        **place,
                        **named,
                    )
                    for how in (8, 12)
                    for named in ({}, {"topic": "B"}, {"topic": names.HALF_TOPIC})
                ),
                make_request(
                    RequestCode.RECALL_MESSAGE, topic="T", recallHandle=timer.ext_fields["recallHandle"]
                ),
                RemotingCommand.request(
                    RequestCode.BATCH_ACK_MESSAGE, body=BatchAckRequest(acks=(ack,)).encode()
                ),
                send("T", b"late", properties={"DELAY": "1"}),
                send("%RETRY%G", b"back"),
            ]
            end_offset = one.store.max_offset
            for road in roads:
                assert (await answer(road, BOB)).code == ResponseCode.NO_PERMISSION, road
            assert one.store.max_offset == end_offset
            # What he may do, he can: a forged destination is no destination.
            forged = {"REAL_TOPIC": "T", "REAL_QID": "0", "RETRY_TOPIC": "T", "DELAY": "1"}
            assert (await answer(send("B", b"late", properties=forged), BOB)).code == 0
            await until(lambda: one.store.queue_range("B", 0).max_offset == 2)
            end = make_request(
                RequestCode.END_TRANSACTION,
                producerGroup="P",
                commitOrRollback=8,
                msgId="U",
                **place,
                topic="T",
            )
            assert (await answer(end, alice)).code == 0
            assert (await answer(pull("T"), alice)).code == 0
            await until(lambda: one.store.queue_range("T", 0).max_offset == 2)

    run(main())
