"""`pyledger serve`: name server and broker in one process."""

from pathlib import Path

import click

from pyledger.cli.parameters import Number
from pyledger.cli.servers.serving import begin_start, log_to_stderr, serve, server_options

PORT = Number(0, 65535)
EXAMPLES = """\b
Examples:
  pyledger serve --dev
  pyledger serve --dev --store ./store --namesrv-port 9876 --port 10911
"""


@click.command("serve", epilog=EXAMPLES)
@click.option("--dev", is_flag=True, required=True, help="For development: loopback, everything allowed.")
@click.option(
    "--store",
    "store_path",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("pyledger-dev"),
    show_default=True,
    help="Folder of the store, made when it is missing.",
)
@click.option("--namesrv-port", type=PORT, default=9876, show_default=True, help="0: a free one.")
@click.option("--port", type=PORT, default=10911, show_default=True, help="0: a free one.")
@click.option(
    "--sync-flush", is_flag=True, help="Acknowledge a message when it is on disk, not when it is in memory."
)
@server_options
def command(
    dev: bool, store_path: Path, namesrv_port: int, port: int, sync_flush: bool, log_level: str
) -> None:
    """Run a name server and a broker until SIGTERM or SIGINT. Prints `READY node HOST:PORT`.

    HOST:PORT is the name server, which is all that a client needs to know. Topics are created by their first
    message, and administrators need no password, so both listen on loopback only.
    """
    begin_start()
    from dataclasses import replace

    from pyledger.servers.local.rocketmq import SMALL_STORE, LocalRocketMQ

    del dev  # the only way there is, but it has to be said
    log_to_stderr(log_level)
    store = replace(SMALL_STORE, flush_disk_type="sync") if sync_flush else SMALL_STORE
    serve("node", lambda: LocalRocketMQ(store_path, name_server_port=namesrv_port, port=port, store=store))
