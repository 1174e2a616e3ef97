"""`pyledger cluster`: brokers registered with name servers, bookies registered in a metadata store."""

from typing import Any

import click

from pyledger.cli.bookkeeper.ledger_cluster import bookie_rows, format_cluster, is_metadata
from pyledger.cli.network import client_of_options, network_options, run_client
from pyledger.cli.output import counted, emit, print_rows, print_status, report, write_line
from pyledger.cli.parameters import json_option

EXAMPLES = """\b
Examples:
  pyledger cluster list
  pyledger cluster status 127.0.0.1:10911
  pyledger cluster status zk://127.0.0.1:2181/ledgers
  pyledger cluster format sqlite:meta
"""


@click.group("cluster", epilog=EXAMPLES)
def command() -> None:
    """Running clusters, brokers and bookies."""


@command.command("list")
@network_options
@json_option
def list_brokers(namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """List all brokers with their addresses."""
    from pyledger.client.admin.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
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
@click.argument("address", metavar="HOST:PORT|METADATA", envvar="PYLEDGER_METADATA")
@network_options
@json_option
def status(address: str, namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """Show the status of a broker, or the bookies of a cluster (zk://HOST:PORT/ledgers or sqlite:FILE).

    Without an argument, METADATA is the value of the variable PYLEDGER_METADATA.
    """
    if is_metadata(address):
        rows, underreplicated = run_client(bookie_rows(address))
        print_rows(rows, as_json)
        print_status(f"{counted(underreplicated, 'ledger')} under-replicated")
        return
    from pyledger.client.admin.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.broker_status(address)

    table = dict(sorted(run_client(work()).items()))
    if as_json:
        emit(table)
        return
    for name, value in table.items():
        write_line(f"{name}\t{value}")


@command.command("format")
@click.argument("metadata")
@json_option
def format_metadata(metadata: str, as_json: bool) -> None:
    """Create an empty cluster for bookies in METADATA (zk://HOST:PORT/ledgers or sqlite:FILE).

    An existing cluster is not changed.
    """
    made = run_client(format_cluster(metadata))
    text = "created an empty cluster" if made else "the cluster already exists; nothing was changed"
    report(text, {"metadata": metadata, "created": made}, as_json=as_json)
