"""Our name server and broker as processes, as RocketMQ's settings have them."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.command_line import COMMAND, ENVIRONMENT
from tests.support.ports import free_ports

SETTINGS = {
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
    "admin_enabled": "true",
}


@dataclass(frozen=True)
class Node:
    """Where the servers of one cluster are."""

    namesrv: str
    broker: str
    store: Path


@contextmanager
def process(*arguments: str, log: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process, and its address."""
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, env=ENVIRONMENT
        ) as started,
    ):
        try:
            assert started.stdout is not None
            words = started.stdout.readline().split()
            assert words[:1] == ["READY"], log.read_text()[-2000:]
            yield started, words[2]
        finally:
            started.kill()


@contextmanager
def our_cluster(folder: Path, **settings: str) -> Iterator[Node]:
    """A name server and a broker of ours; `settings` are keys of `broker.conf`, and of ours."""
    (port,) = free_ports(1)
    conf = folder / "broker.conf"
    chosen = SETTINGS | settings
    conf.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
    with ExitStack() as stack:
        open_to_all = folder / "namesrv.conf"
        open_to_all.write_text("listenPort=0\nadmin_enabled=true\n")
        start = ("namesrv", "--config", str(open_to_all))
        _, namesrv = stack.enter_context(process(*start, log=folder / "namesrv.log"))
        where = ("--listen", f"127.0.0.1:{port}", "--store", str(folder / "store"))
        start = ("broker", "--config", str(conf), "--namesrv", namesrv, *where)
        _, broker = stack.enter_context(process(*start, log=folder / "broker.log"))
        yield Node(namesrv, broker, folder / "store")
