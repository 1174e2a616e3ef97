"""`pyledger namesrv` as a process, and requests to any name server."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyledger.net.loop import run
from pyledger.wire.remoting.command import RemotingCommand
from tests.cli.command_line import COMMAND, ENVIRONMENT
from tests.net.peers import calling


@contextmanager
def serving(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A name server as a process, and its address."""
    process = subprocess.Popen(
        [*COMMAND, "namesrv", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | {"HOME": str(home)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        word, name, address = process.stdout.readline().split()
        assert (word, name) == ("READY", "namesrv")
        yield process, address
    finally:
        process.kill()
        process.communicate()


def ask(address: str, command: RemotingCommand) -> RemotingCommand:
    async def main() -> RemotingCommand:
        async with calling() as client:
            return await client.call(address, command, 10_000)

    return run(main())
