"""`pyledger namesrv`: run a name server."""

from pathlib import Path

import click

from pyledger.cli.servers.serving import (
    begin_start,
    config_option,
    listen_option,
    log_ignored,
    log_to_stderr,
    serve,
    server_options,
)

EXAMPLES = """\b
Examples:
  pyledger namesrv
  pyledger namesrv --listen 0.0.0.0:9876
  pyledger namesrv --config namesrv.conf
"""


@click.command("namesrv", epilog=EXAMPLES)
@listen_option("127.0.0.1:9876")
@config_option
@click.option("--admin", is_flag=True, help="Also serve requests that change the name server.")
@server_options
def command(listen: tuple[str, int] | None, config_path: Path | None, admin: bool, log_level: str) -> None:
    """Run a name server until SIGTERM or SIGINT. Prints `READY namesrv HOST:PORT` once it answers.

    Brokers register with it and clients fetch routes from it: RocketMQ's own, or ours. Only the KV config is
    stored on disk.
    """
    begin_start()

    from pyledger.config.loader import ConfigFile
    from pyledger.config.namesrv import FIXED, NamesrvConfig
    from pyledger.config.net import NetConfig, TlsConfig
    from pyledger.servers.namesrv.server import NameServer

    log_to_stderr(log_level)
    file = ConfigFile(config_path)
    host, port = listen or (None, None)
    options = {"host": host, "port": port, "admin_enabled": admin or None}
    config = file.load(NamesrvConfig, "namesrv", options)
    net, tls = file.load(NetConfig, "net"), file.load(TlsConfig, "tls")
    log_ignored(file.ignored(FIXED), "namesrv")
    serve("namesrv", lambda: NameServer(config, net=net, tls=tls))
