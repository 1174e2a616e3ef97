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


async def send_until_rejected(client: RawPeer, acknowledged: list[bytes]) -> str:
    """Send and record what is acknowledged, until the disk is full; return the broker's remark."""
    while True:
        body = b"%d " % len(acknowledged) + bytes(BODY_BYTES)
        answer = await client.request(send("T", body))
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            return str(answer.remark)
        acknowledged.append(body)


def test_full_disk_loses_nothing(disk: Path) -> None:
    acknowledged: list[bytes] = []

    async def until_full(broker: BrokerProcess) -> None:
        async with broker.peer() as client:
            assert (await client.request(send("T", b"first"))).code == ResponseCode.SUCCESS
            acknowledged.append(b"first")
            filler = fill(disk)
            # No file can be created, so no topic either.
            rejected = await client.request(send("Other"))
            assert rejected.code != ResponseCode.SUCCESS
            assert "no space left" in str(rejected.remark)
            remark = await send_until_rejected(client, acknowledged)
            assert "no space left" in remark
            assert str(disk) in remark
            before = len(acknowledged)
            # As soon as there is free space, the broker continues without help.
            filler.unlink()
            while (answer := await client.request(send("T", b"again"))).code != ResponseCode.SUCCESS:
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            acknowledged.append(b"again")
            fill(disk)
            await send_until_rejected(client, acknowledged)
            assert len(acknowledged) > before

    broker = BrokerProcess(disk)
    broker.start()
    try:
        asyncio.run(until_full(broker))
        broker.kill()
        (disk / "filler").unlink()
        broker.start()
        assert broker.bodies("T") == acknowledged
    finally:
        broker.kill()


def test_folder_that_cannot_be_written_is_reported(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
    done = pyledger("broker", "--listen", "127.0.0.1:0", "--store", str(disk / "store"))
    assert done.code != 0
    assert "Read-only file system" in done.err
    assert str(disk) in done.err
    assert "Traceback" not in done.err


def test_start_on_a_full_memory_disk_fails(disk: Path) -> None:
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
