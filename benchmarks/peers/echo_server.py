"""A server of remoting in a process of its own, which answers every request with its body.

Prints its port, then serves until its standard input ends.
"""

import asyncio
import sys

from pyledger.net.loop import loop_factory
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand


def echo(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The answer to one request."""
    return request.response(0, body=request.body)


async def serve() -> None:
    """Serve until the parent is gone."""
    server = RemotingServer(echo)
    await server.start()
    print(server.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.close()


if __name__ == "__main__":
    factory = asyncio.new_event_loop if sys.argv[1:] == ["asyncio"] else loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve())
