"""What commands for ledgers share: where the cluster is, and its client."""

from typing import Any

import click

from pyledger.cli.bookie import require_protobuf

metadata_option = click.option(
    "-m",
    "--metadata",
    required=True,
    envvar="PYLEDGER_METADATA",
    show_envvar=True,
    help="Where the cluster's metadata is: zk://HOST:PORT/ledgers or sqlite:FILE.",
)


def client_of(metadata: str) -> Any:
    """A client that is not started yet."""
    require_protobuf()
    from pyledger.client.ledger import AsyncLedgerClient, LedgerConfig
    from pyledger.config.loader import load

    return AsyncLedgerClient(metadata, config=load(LedgerConfig, "ledger"))
