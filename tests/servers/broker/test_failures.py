"""A disk that fails under a broker: nothing is acknowledged that is not durable, and readers go on."""

import asyncio
from pathlib import Path

import pytest

from pyledger.errors import StoreIOError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.table_file import TableFile
from tests.fault_injection.shim import compiler, run_child
from tests.servers.broker.peers import broker, make_request, peer, send

STORY = """
import asyncio, errno, sys
from pathlib import Path
from tests.servers.broker.peers import broker, peer, pull, send
from tests.servers.broker.test_messages import bodies
from tests.fault_injection.shim import Call, IoFaults

faults = IoFaults()

async def main():
    async with broker(Path(sys.argv[1]), store={"flush_disk_type": "sync"}) as one, peer(one) as client:
        assert (await client.request(send("T", b"durable"))).code == 0
        faults.fail(Call.MSYNC, errno.EIO)
        faults.fail(Call.FDATASYNC, errno.EIO)
        lost = await client.request(send("T", b"lost"))
        assert lost.code == 14, lost
        faults.heal(Call.MSYNC)
        faults.heal(Call.FDATASYNC)
        refused = await client.request(send("T", b"refused"))
        assert (refused.code, "msgId" in refused.ext_fields) == (14, False), refused
        waived = await client.request(send("T", b"refused", properties={"WAIT": "false"}))
        assert waived.code == 14, waived
        assert bodies(await client.request(pull("T"))) == [b"durable"]

asyncio.run(main())
print("told")
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")
def test_broker_whose_flush_fails_takes_no_more_messages(tmp_path: Path) -> None:
    assert run_child(STORY, tmp_path, str(tmp_path)) == "told\n"


class Empty:
    """A table of nothing."""

    def write(self, folder: Path) -> None:
        (folder / "empty").touch()


def test_a_table_whose_folder_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    """As one that cannot be written: else it would end what copies tables, or closes a broker."""
    above = tmp_path / "store"
    above.touch()
    file = TableFile(above / "config", lambda: 1, Empty)
    with pytest.raises(StoreIOError, match="config"):
        asyncio.run(file.save())
    above.unlink()
    asyncio.run(file.save())
    assert (above / "config" / "empty").exists()


def test_a_table_that_cannot_be_written_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def until_written_again() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            assert (await client.request(send("T", b"a topic"))).code == ResponseCode.SUCCESS
            in_the_way = tmp_path / "store" / "config" / "consumerOffset.json.tmp"
            in_the_way.mkdir()
            change = make_request(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1
            )
            assert (await client.request(change)).code == ResponseCode.SUCCESS
            for _ in range(3):
                await one.context.tables.save_changed()
            in_the_way.rmdir()
            for _ in range(3):
                await one.context.tables.save_changed()

    with caplog.at_level("INFO", "pyledger.broker"):
        asyncio.run(until_written_again())
    lines = [record.getMessage() for record in caplog.records if "table" in record.getMessage()]
    assert [line[:19] for line in lines] == ["table not written p", "table written again"]
    assert '"g"' in (tmp_path / "store" / "config" / "consumerOffset.json").read_text()
