"""What commands for ledgers share: where the cluster is, and its client."""

from typing import Any

import click

from pyledger.cli.output import CannotReachError

metadata_option = click.option(
    "-m",
    "--metadata",
    required=True,
    envvar="PYLEDGER_METADATA",
    show_envvar=True,
    help="Where the cluster's metadata is: zk://HOST:PORT/ledgers or sqlite:FILE.",
)


def require_protobuf() -> None:
    """One line that says what to install, where it is missing."""
    try:
        import pyledger.wire.bookkeeper.schema  # noqa: F401
    except ImportError as error:
        raise CannotReachError(str(error)) from error


def client_of(metadata: str) -> Any:
    """A client that is not started yet."""
    require_protobuf()
    from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
    from pyledger.config.loader import load
    from pyledger.config.net import TlsConfig

    return AsyncLedgerClient(
        metadata, config=load(BookkeeperConfig, "bookkeeper"), tls=load(TlsConfig, "tls")
    )
