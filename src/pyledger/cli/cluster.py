"""`pyledger cluster`: the brokers that name servers know."""

from typing import Any

import click

from pyledger.cli.network import client_config, network_options, run_client
from pyledger.cli.output import emit, write_line
from pyledger.cli.parameters import json_option
from pyledger.cli.topic import print_rows

EXAMPLES = """\b
Examples:
  pyledger cluster list
  pyledger cluster status 127.0.0.1:10911
"""


@click.group("cluster", epilog=EXAMPLES)
def command() -> None:
    """Clusters and brokers that run."""


@command.command("list")
@network_options
@json_option
def list_brokers(namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """All brokers, with their addresses."""
    from pyledger.client.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_config(namesrv, access_key, secret_key)) as admin:
            return await admin.clusters()

    known = run_client(work())
    rows = [
        {"cluster": cluster, "brokerName": name, "brokerId": broker_id, "address": address}
        for cluster, broker_names in sorted(known.clusters.items())
        for name in sorted(broker_names)
        for broker_id, address in sorted(known.brokers[name].broker_addrs.items())
    ]
    print_rows(rows, as_json)


@command.command("status")
@click.argument("address", metavar="HOST:PORT")
@network_options
@json_option
def status(address: str, namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """What a broker says of itself."""
    from pyledger.client.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_config(namesrv, access_key, secret_key)) as admin:
            return await admin.broker_status(address)

    table = dict(sorted(run_client(work()).items()))
    if as_json:
        emit(table)
        return
    for name, value in table.items():
        write_line(f"{name}\t{value}")
