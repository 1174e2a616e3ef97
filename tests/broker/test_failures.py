"""A disk that fails under a broker: nothing is acknowledged that is not durable, and readers go on."""

from pathlib import Path

import pytest

from tests.fault_injection.shim import compiler, run_child

STORY = """
import asyncio, errno, sys
from pathlib import Path
from tests.broker.peers import broker, peer, pull, send
from tests.broker.test_messages import bodies
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
