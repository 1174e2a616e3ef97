"""`pyledger serve`: name server and broker in one process, for development."""

from pathlib import Path

import click

from pyledger.cli.parameters import NonEmptyPath
from pyledger.cli.servers.serving import begin_start, listen_option, log_to_stderr, serve, server_options

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
NAME_SERVER, BROKER = "127.0.0.1:9876", "127.0.0.1:10911"
EXAMPLES = """\b
Examples:
  pyledger serve
  pyledger serve --store ./store --listen 127.0.0.1:0 --broker-listen 127.0.0.1:0
"""


@click.command("serve", epilog=EXAMPLES)
@click.option(
    "--store",
    "store_path",
    type=NonEmptyPath(path_type=Path, file_okay=False),
    default=Path("pyledger-dev"),
    show_default=True,
    help="Folder of the store; created if it does not exist.",
)
@listen_option(NAME_SERVER)
@listen_option(BROKER, "--broker-listen", "Address of the broker")
@click.option(
    "--sync-flush", is_flag=True, help="Acknowledge a message when it is on disk, not when it is in memory."
)
@server_options
def command(
    store_path: Path,
    listen: tuple[str, int] | None,
    broker_listen: tuple[str, int] | None,
    sync_flush: bool,
    log_level: str,
) -> None:
    """Run a name server and a broker for development, until SIGTERM or SIGINT. Prints `READY node HOST:PORT`.

    HOST:PORT is the address of the name server, which clients need; `--listen` sets it. Topics are created by
    their first message, and administration needs no password, so both servers listen on loopback only.
    """
    begin_start()
    from dataclasses import replace

    from pyledger.servers.local.rocketmq import SMALL_STORE, LocalRocketMQ

    name_server_port, port = _port(listen, NAME_SERVER), _port(broker_listen, BROKER)
    log_to_stderr(log_level)
    store = replace(SMALL_STORE, flush_disk_type="sync") if sync_flush else SMALL_STORE
    serve(
        "node", lambda: LocalRocketMQ(store_path, name_server_port=name_server_port, port=port, store=store)
    )


def _port(address: tuple[str, int] | None, default: str) -> int:
    if address is None:
        return int(default.rpartition(":")[2])
    host, port = address
    if host not in LOOPBACK:
        raise click.UsageError(f"serve allows everything, so it listens on 127.0.0.1 only, not on {host}")
    return port
