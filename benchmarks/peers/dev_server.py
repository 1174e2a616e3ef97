"""A name server and a broker in a process of their own, for clients that are measured.

Prints the address of the name server, then serves until its standard input ends.
"""

import asyncio
import sys
from pathlib import Path

from pyledger.config.store import StoreConfig
from pyledger.net.loop import loop_factory
from pyledger.servers.local.rocketmq import LocalRocketMQ


async def serve(folder: Path) -> None:
    """Serve until the parent is gone."""
    node = LocalRocketMQ(folder, store=StoreConfig())
    await node.start()
    print(node.address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await node.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(Path(sys.argv[1])))
