"""n bytes from a peer cost a constant times n, whoever it is and whatever they are, at every server."""

import re
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper import messages as m
from pyledger.wire.bookkeeper import version3
from tests.cli.command_line import COMMAND, ENVIRONMENT
from tests.support.ports import free_ports

SMALL_BYTES = 48 << 10
LARGE_BYTES = 4 * SMALL_BYTES
REPEATED = 3
SECONDS_PER_MB = 4.0
"""What no frame may cost; a quarter of it is what the worst does on an idle machine."""
UNITS = (
    "1,", '"a":1,', "a:1,", "{},", "[],", "{a:1},",
    '{"$ref":"$"},', '{"$ref":"$.x"},', '{"$ref":".."},', "{{}:1},",
    "/**/", "/*", "\\x41", "\\u0001", '"', "'", '"a",', "9", "[", "{", "{a:", "\\", " ", "%", "\x01",
    "a=1\n",
    '{"groupName":"g"},', '{"topic":"T"},', '{"groupName":"g","subscriptionDataSet":[{"topic":"T"}]},',
    '{"index":1},', '{"b":"/w=="},', '"T":{"perm":6},',
)  # fmt: skip
STARTS = (
    "", "[", "{", '{"x":[', "{x:[", "{x:'",
    '{"clientID":"c","consumerDataSet":[', '{"producerDataSet":[', '{"mqSet":[',
    '{"topicConfigSerializeWrapper":{"topicConfigTable":{', '{"batchEntry":[', '{"batchMsgs":[', '{"acks":[',
    '{"topicConfigList":[', '{"queueDatas":[',
    '{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[',
)  # fmt: skip
ENDS = ("", "]", "}", "]}", "'}", "}}}", "]}]}")
CODES = (
    10, 11, 12, 18, 25, 34, 41, 42, 46, 100, 103, 105, 200, 217, 225, 310, 318, 320, 322, 400, 3006, 50001,
    50002, 51001, 51002, 51004, 50911, 50912, 200050, 200151,
)  # fmt: skip
GENERATED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Server(NamedTuple):
    """One process."""

    pid: int
    port: int

    def cost_s(self) -> float:
        """Processor time of all its threads."""
        found = 0
        for path in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            found += int(path.read_text().split()[0])
        return found / 1e9

    def peak_bytes(self) -> int:
        """The most memory that it had."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) << 10

    def exchange(self, frame: bytes) -> None:
        """Send a frame; wait for an answer, or for the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as connection:
            try:
                connection.sendall(frame)
                connection.recv(1 << 16)
            except (BrokenPipeError, ConnectionResetError):
                return


@contextmanager
def running(arguments: list[str], ready: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(ready, line):
                break
        else:
            raise AssertionError("it does not say where it listens")
        silent = threading.Thread(target=process.stdout.read)
        silent.start()
        yield Server(process.pid, int(found[1]))
    finally:
        process.kill()
        process.wait(60)
        silent.join()
        process.stdout.close()


@pytest.fixture(scope="module", params=["namesrv", "broker", "broker with access control", "dledger"])
def remoting_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    if request.param == "namesrv":
        arguments = ["namesrv", "--listen", "127.0.0.1:0"]
    elif request.param == "dledger":
        peers = f"n0-127.0.0.1:{free_ports(1)[0]}"
        arguments = [
            "dledger",
            "node",
            "--group",
            "g",
            "--id",
            "n0",
            "--peers",
            peers,
            "--store",
            str(folder),
        ]
    else:
        lines = [
            "[broker]",
            "port = 0",
            f'store_path = "{folder / "store"}"',
            "[delivery]",
            "property_filter = true",
        ]
        if request.param != "broker":
            users = folder / "users.toml"
            users.write_text('[[users]]\nusername="root"\npassword="change-me-long"\nuserType="Super"\n')
            users.chmod(0o600)
            lines.insert(1, f'acl_path = "{users}"')
        (folder / "broker.toml").write_text("\n".join(lines))
        arguments = ["broker", "--config", str(folder / "broker.toml")]
    with running([*arguments, "--log-level", "error"], r"READY .*:(\d+)\s*$") as server:
        yield server


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = str(tmp_path_factory.mktemp("bookie"))
    with running(["bookie", "serve", folder, "--dev", "1"], r"bookie serves address=\S+:(\d+)") as server:
        yield server


def costs_in_proportion(server: Server, made: Callable[[int], bytes]) -> None:
    """Send frames of n and of 4 n bytes, and compare what they cost."""

    def cost_s(size_bytes: int) -> float:
        frame, costs = made(size_bytes), []
        for _ in range(REPEATED):
            before = server.cost_s()
            server.exchange(frame)
            costs.append(server.cost_s() - before)
        return min(costs)

    before = server.peak_bytes()
    small, large = cost_s(SMALL_BYTES), cost_s(LARGE_BYTES)
    assert large < 8 * small + 0.1
    assert large < SECONDS_PER_MB * LARGE_BYTES / 1e6
    assert server.peak_bytes() - before < (32 << 20) + 100 * LARGE_BYTES


def frame_of(header: bytes, body: bytes = b"", *, binary: bool = False) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), binary << 24 | len(header)) + header + body


def filled(start: str, units: list[str], end: str, size_bytes: int) -> bytes:
    unit = "".join(units)
    return f"{start}{unit * (size_bytes // len(unit))}{end}".encode()


@given(
    st.sampled_from(STARTS), st.lists(st.sampled_from(UNITS), min_size=1, max_size=3), st.sampled_from(ENDS)
)
@GENERATED
def test_headers_cost_in_proportion_to_their_size(
    remoting_server: Server, start: str, units: list[str], end: str
) -> None:
    def made(size_bytes: int) -> bytes:
        return frame_of(filled('{"code":34,"opaque":1,"extFields":' + start, units, end + "}", size_bytes))

    costs_in_proportion(remoting_server, made)


@given(
    st.sampled_from(CODES),
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(UNITS), min_size=1, max_size=3),
    st.sampled_from(ENDS),
)
@GENERATED
def test_bodies_cost_in_proportion_to_their_size(
    remoting_server: Server, code: int, start: str, units: list[str], end: str
) -> None:
    fields = '"brokerName":"b","brokerAddr":"127.0.0.1:1","clusterName":"c","brokerId":"0","topic":"T"'
    header = f'{{"code":{code},"opaque":1,"version":479,"extFields":{{{fields}}}}}'.encode()
    costs_in_proportion(
        remoting_server, lambda size_bytes: frame_of(header, filled(start, units, end, size_bytes))
    )


@given(st.binary(min_size=1, max_size=8), st.binary(min_size=0, max_size=8))
@GENERATED
def test_binary_headers_cost_in_proportion_to_their_size(
    remoting_server: Server, name: bytes, value: bytes
) -> None:
    def made(size_bytes: int) -> bytes:
        field = struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
        fields = field * (size_bytes // len(field))
        return frame_of(struct.pack(">hBhiiii", 34, 0, 479, 1, 0, 0, len(fields)) + fields, binary=True)

    costs_in_proportion(remoting_server, made)


def test_references_to_references_cost_what_their_bytes_cost(remoting_server: Server) -> None:
    again = ",".join(['{"$ref":"$.x.aN"}'] * 10)
    levels = ['"a0":["lol"]', *(f'"a{one}":[{again.replace("N", str(one - 1))}]' for one in range(1, 20))]
    nested = f"x:{{{','.join(levels)}}}"
    frames = [
        frame_of(f'{{code:{code},opaque:1,{nested},extFields:{{k:{{"$ref":"$.x.a19"}}}}}}'.encode())
        for code in CODES
    ]
    frames += [frame_of(b'{"code":%d,"opaque":1}' % code, f"{{{nested}}}".encode()) for code in CODES]
    before, peak_bytes = remoting_server.cost_s(), remoting_server.peak_bytes()
    for frame in frames:
        remoting_server.exchange(frame)
    assert remoting_server.cost_s() - before < 2
    assert remoting_server.peak_bytes() - peak_bytes < 16 << 20


def test_a_registration_that_decompresses_to_much_is_rejected(remoting_server: Server) -> None:
    fields = (
        '"brokerName":"b","brokerAddr":"127.0.0.1:1","clusterName":"c","brokerId":"0","compressed":"true"'
    )
    header = f'{{"code":103,"opaque":1,"version":479,"extFields":{{{fields}}}}}'.encode()
    costs_in_proportion(
        remoting_server, lambda size_bytes: frame_of(header, zlib.compress(bytes(900 * size_bytes), 9))
    )


@given(
    st.sampled_from([b"", version3.encode_request(m.ReadRequest(txn_id=1, ledger_id=1, entry_id=1))]),
    st.lists(
        st.binary(min_size=1, max_size=12) | st.sampled_from([b"\x0a\x00", b"\x0a\x02\x08\x03"]),
        min_size=1,
        max_size=3,
    ),
)
@GENERATED
def test_frames_of_a_bookie_cost_in_proportion_to_their_size(
    bookie: Server, start: bytes, units: list[bytes]
) -> None:
    def made(size_bytes: int) -> bytes:
        unit = b"".join(units)
        body = start + unit * (size_bytes // len(unit))
        return len(body).to_bytes(4) + body

    costs_in_proportion(bookie, made)


@pytest.mark.parametrize(
    ("code", "start", "unit", "end"),
    [
        (34, '{"clientID":"c","consumerDataSet":[', "{},", "]}"),
        (34, '{"clientID":"c","consumerDataSet":[', '{"groupName":"g"},', "]}"),
        (34, '{"clientID":"c","consumerDataSet":[', '{"consumeTypes":1},', "]}"),
        (34, '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[', "{},", "]}]}"),
        (103, '{"topicConfigSerializeWrapper":{"topicConfigTable":{', '"T":{},', "}}}"),
    ],
)
def test_other_connections_are_served_while_a_large_body_is_read(
    remoting_server: Server, code: int, start: str, unit: str, end: str
) -> None:
    fields = '"brokerName":"b","brokerAddr":"127.0.0.1:1","clusterName":"c","brokerId":"0"'
    header = f'{{"code":{code},"opaque":1,"version":479,"extFields":{{{fields}}}}}'.encode()
    frame = frame_of(header, filled(start, [unit], end, 1_000_000))
    ping = frame_of(b'{"code":9999,"opaque":2}')
    started, done = threading.Event(), threading.Event()
    waits = []

    def other() -> None:
        with socket.create_connection(("127.0.0.1", remoting_server.port), 60) as connection:
            while not done.is_set():
                before = time.monotonic()
                connection.sendall(ping)
                assert connection.recv(1 << 16)
                waits.append(time.monotonic() - before)
                started.set()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert started.wait(60)
        remoting_server.exchange(frame)
    finally:
        done.set()
        thread.join()
    # 50 ms, and what a loaded machine adds.
    assert max(waits) < 0.3
