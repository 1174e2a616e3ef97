"""A broker on a small disk that fills up, is freed, and fills up again: nothing acknowledged is lost.

The disk is a tmpfs of its own; where mounting one is not allowed the tests are skipped.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.model.remoting_codes import ResponseCode
from tests.cli.command_line import pyledger
from tests.net.peers import RawPeer
from tests.servers.broker.peers import send
from tests.servers.broker.process import BrokerProcess

DISK_MIB = 24
BODY_BYTES = 50_000
PIECE = bytes(64 << 10)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"no disk of its own: {problem}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def fill(folder: Path) -> Path:
    """Take all the room there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(PIECE)
            except OSError:
                return filler


async def send_until_refused(client: RawPeer, told: list[bytes]) -> str:
    """Send, noting what is acknowledged, until there is no room; what the broker says then."""
    while True:
        body = b"%d " % len(told) + bytes(BODY_BYTES)
        answer = await client.request(send("T", body))
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            return str(answer.remark)
        told.append(body)


def test_full_disk_loses_nothing(disk: Path) -> None:
    told: list[bytes] = []

    async def until_full(broker: BrokerProcess) -> None:
        async with broker.peer() as client:
            assert (await client.request(send("T", b"first"))).code == ResponseCode.SUCCESS
            told.append(b"first")
            filler = fill(disk)
            # Nothing can be made, a topic neither.
            refused = await client.request(send("Other"))
            assert refused.code != ResponseCode.SUCCESS
            assert "no space left" in str(refused.remark)
            said = await send_until_refused(client, told)
            assert "no space left" in said
            assert str(disk) in said
            before = len(told)
            # As soon as there is room, it goes on by itself.
            filler.unlink()
            while (answer := await client.request(send("T", b"again"))).code != ResponseCode.SUCCESS:
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            told.append(b"again")
            fill(disk)
            await send_until_refused(client, told)
            assert len(told) > before

    broker = BrokerProcess(disk)
    broker.start()
    try:
        asyncio.run(until_full(broker))
        broker.kill()
        (disk / "filler").unlink()
        broker.start()
        assert broker.bodies("T") == told
    finally:
        broker.kill()


def test_folder_that_cannot_be_written_is_told_of(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
    done = pyledger("broker", "--listen", "127.0.0.1:0", "--store", str(disk / "store"))
    assert done.code != 0
    assert "Read-only file system" in done.err
    assert str(disk) in done.err
    assert "Traceback" not in done.err


def test_start_on_a_full_memory_disk_is_refused(disk: Path) -> None:
    """There a page that is looked at takes room; without any, the kernel would end the process."""

    async def begin(broker: BrokerProcess) -> None:
        async with broker.peer() as client:
            assert (await client.request(send("T", b"kept"))).code == ResponseCode.SUCCESS

    broker = BrokerProcess(disk)
    broker.start()
    try:
        asyncio.run(begin(broker))
        broker.kill()
        filler = fill(disk)
        done = pyledger("broker", "--listen", "127.0.0.1:0", "--store", str(broker.store))
        assert done.code == 1
        assert f"cannot open {broker.store}: no space left" in done.err
        assert "Traceback" not in done.err
        filler.unlink()
        broker.start()
        assert broker.bodies("T") == [b"kept"]
    finally:
        broker.kill()
