"""`pyledger broker`: run a broker."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyledger.cli.parameters import NonEmptyPath
from pyledger.cli.servers.serving import (
    begin_start,
    config_option,
    listen_option,
    log_ignored,
    log_to_stderr,
    serve,
    server_options,
)

if TYPE_CHECKING:
    from pyledger.servers.broker.dledger.member import Membership

EXAMPLES = """\b
Examples:
  pyledger broker --namesrv 127.0.0.1:9876 --store ./store
  pyledger broker -c broker.conf
"""


@click.command("broker", epilog=EXAMPLES)
@config_option
@click.option("-n", "--namesrv", metavar="HOST:PORT;…", help="Name servers to report to.")
@click.option(
    "--store", "store_path", type=NonEmptyPath(path_type=Path, file_okay=False), help="Folder of the store."
)
@listen_option("127.0.0.1:10911")
@server_options
def command(
    config_path: Path | None,
    namesrv: str | None,
    store_path: Path | None,
    listen: tuple[str, int] | None,
    log_level: str,
) -> None:
    """Run a broker until SIGTERM or SIGINT. Prints `READY broker HOST:PORT` once it answers.

    RocketMQ's own `broker.conf` can be used unchanged. The first message to an unknown topic creates it only
    with autoCreateTopicEnable=true.
    """
    begin_start()

    from pyledger.config.broker import FIXED, BrokerConfig
    from pyledger.config.delivery import DeliveryConfig
    from pyledger.config.dledger import DLedgerConfig
    from pyledger.config.dledger_broker import DLedgerBrokerConfig
    from pyledger.config.ha import HaConfig
    from pyledger.config.loader import ConfigFile
    from pyledger.config.net import NetConfig, TlsConfig
    from pyledger.config.store import StoreConfig
    from pyledger.servers.broker.server import Broker
    from pyledger.servers.broker.supervisor.ha_supervisor import HaSupervisor

    log_to_stderr(log_level)
    file = ConfigFile(config_path)
    host, port = listen or (None, None)
    folder = None if store_path is None else str(store_path)
    options = {"name_servers": namesrv, "store_path": folder, "host": host, "port": port}
    config = file.load(BrokerConfig, "broker", options)
    delivery, store = file.load(DeliveryConfig, "delivery"), file.load(StoreConfig, "store")
    ha, dledger = file.load(HaConfig, "ha"), file.load(DLedgerConfig, "dledger")
    dledger_broker = file.load(DLedgerBrokerConfig, "dledger_broker")
    net, tls = file.load(NetConfig, "net"), file.load(TlsConfig, "tls")
    log_ignored(file.ignored(FIXED), "broker")

    def made(config: BrokerConfig, ha: HaConfig, membership: "Membership | None" = None) -> Broker:
        return Broker(config, delivery=delivery, store=store, net=net, tls=tls, ha=ha, membership=membership)

    if not dledger_broker.enabled:
        serve("broker", lambda: HaSupervisor(made, config, ha))
        return
    from pyledger.servers.broker.supervisor.dledger_supervisor import DLedgerSupervisor, member_of

    member = member_of(dledger_broker, dledger, config, store, net)
    serve("broker", lambda: DLedgerSupervisor(made, config, ha, member, dledger_broker.slave_id))
