"""Options and helpers that the commands for ledgers share."""

from typing import Any

import click

metadata_option = click.option(
    "-m",
    "--metadata",
    required=True,
    envvar="PYLEDGER_METADATA",
    show_envvar=True,
    help="Where the cluster's metadata is: zk://HOST:PORT/ledgers or sqlite:FILE.",
)


def require_protobuf() -> None:
    """Raise `MissingExtraError` if protobuf is not installed."""
    import pyledger.wire.bookkeeper.schema  # noqa: F401


def client_of(metadata: str) -> Any:
    """Create a client that is not started yet."""
    require_protobuf()
    from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
    from pyledger.config.loader import load
    from pyledger.config.net import TlsConfig

    return AsyncLedgerClient(
        metadata, config=load(BookkeeperConfig, "bookkeeper"), tls=load(TlsConfig, "tls")
    )
