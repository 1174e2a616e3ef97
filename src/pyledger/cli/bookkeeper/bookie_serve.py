"""`pyledger bookie serve`: run a bookie."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pyledger.cli.parameters import NonEmptyPath, Number
from pyledger.cli.servers.serving import (
    begin_start,
    config_option,
    listen_option,
    log_ignored,
    log_to_stderr,
    serve,
    server_options,
)

DEV_FOLDER = Path("pyledger-bookies")
EXAMPLES = """\b
Examples:
  pyledger bookie serve ./bookies --dev 3
  pyledger bookie serve /var/bookie --metadata zk://127.0.0.1:2181/ledgers
  pyledger bookie serve /var/bookie --metadata zk://127.0.0.1:2181/ledgers --ledgers /disk1 --ledgers /disk2
  pyledger bookie serve -c bk_server.conf
"""


_OF_ONE_BOOKIE = {
    "host",
    "port",
    "advertised_host",
    "bookie_id",
    "metadata",
    "zk_servers",
    "journal_directories",
    "ledger_directories",
}
"""Settings that `--dev` ignores: its bookies are in FOLDER, on free ports of loopback."""


@click.command("serve", epilog=EXAMPLES)
@click.argument("folder", required=False, type=NonEmptyPath(path_type=Path, file_okay=False))
@click.option(
    "--dev", "count", type=Number(1, 99), metavar="N", help="Run N bookies in this process, with metadata."
)
@listen_option("127.0.0.1:3181")
@click.option("--metadata", help="The cluster: zk://HOST:PORT/ledgers, or sqlite:FILE.")
@click.option("--id", "bookie_id", default="", help="Its name in the cluster.  [default: HOST:PORT]")
@click.option(
    "--advertise", default="", metavar="HOST", help="Where clients find it.  [default: as it listens]"
)
@click.option(
    "--journal",
    "journals",
    multiple=True,
    type=NonEmptyPath(file_okay=False),
    help="Folder of a journal; give one for each disk.  [default: FOLDER/journal]",
)
@click.option(
    "--ledgers",
    multiple=True,
    type=NonEmptyPath(file_okay=False),
    help="Folder of entry logs and indexes; give one for each disk.  [default: FOLDER/ledgers]",
)
@config_option
@server_options
def command(
    folder: Path | None,
    count: int | None,
    listen: tuple[str, int] | None,
    metadata: str | None,
    bookie_id: str,
    advertise: str,
    journals: tuple[str, ...],
    ledgers: tuple[str, ...],
    config_path: Path | None,
    log_level: str,
) -> None:
    """Run a bookie until SIGTERM or SIGINT. Prints `READY bookie HOST:PORT` once it answers.

    FOLDER is created if it is missing; it can be omitted if options or a `bk_server.conf` name the folders of
    journals and ledgers. Clients of BookKeeper find the bookie through `--metadata`. `--dev N` runs N bookies
    on free ports of loopback and a cluster in FOLDER/metadata.db, where FOLDER is `pyledger-bookies` by
    default; the line is then `READY bookies sqlite:FILE`, the address for clients.
    """
    begin_start()
    if count is not None and metadata is not None:
        raise click.UsageError("give either --metadata or --dev")
    if count is not None and (journals or ledgers):
        raise click.UsageError("with --dev all folders are below FOLDER")
    from pyledger.config.bookie import FIXED, BookieConfig
    from pyledger.config.loader import ConfigFile
    from pyledger.config.net import TlsConfig
    from pyledger.metadata.cluster import locate
    from pyledger.servers.bookkeeper.server import BookieServer
    from pyledger.servers.local.bookies import AsyncLocalBookies

    log_to_stderr(log_level)
    file = ConfigFile(config_path)
    config, tls = file.load(BookieConfig, "bookie"), file.load(TlsConfig, "tls")
    add_autorecovery = _with_autorecovery(file, tls, enabled=config.auto_recovery_daemon_enabled)
    ignored = file.ignored(FIXED)
    if count is not None:
        log_ignored((*ignored, *_of_one_bookie(config)), "bookie")
        group = AsyncLocalBookies(folder or DEV_FOLDER, count, config=config, tls=tls)
        serve("bookies", lambda: add_autorecovery(group, group.address, "bookies"))
        return
    log_ignored(ignored, "bookie")
    cluster = metadata or config.cluster_address
    if not cluster:
        raise click.UsageError("give --metadata or --dev, or set metadataServiceUri in the file")
    host, port = listen or (config.host, config.port)
    name, advertised = bookie_id or config.bookie_id, advertise or config.advertised_host

    def bookie() -> Any:
        made = BookieServer(
            _paths(folder, config, journals, ledgers),
            config=config,
            host=host,
            port=port,
            tls=tls,
            cluster=locate(cluster, make=False),
            bookie_id=name,
            advertised_host=advertised,
        )
        return add_autorecovery(made, cluster, name or f"{advertised or host}:{port}")

    serve("bookie", bookie)


def _of_one_bookie(config: Any) -> list[str]:
    """Return the given settings that `--dev` ignores."""
    from pyledger.config.fields import settings_of

    return [
        one.name
        for one in settings_of(type(config))
        if one.name in _OF_ONE_BOOKIE and getattr(config, one.name) != one.default
    ]


def _paths(folder: Path | None, config: Any, journals: tuple[str, ...], ledgers: tuple[str, ...]) -> Any:
    """Return the folders of the bookie: from the options, else the settings, else below its folder."""
    from pyledger.store.bookkeeper.folder import BookiePaths

    journals = journals or _listed(config.journal_directories)
    ledgers = ledgers or _listed(config.ledger_directories)
    if folder is None:
        if not (journals and ledgers):
            raise click.UsageError(
                "give FOLDER, or folders for both: journalDirectories and ledgerDirectories"
            )
        return BookiePaths(journals, ledgers)
    below = BookiePaths.below(folder)
    return BookiePaths(journals or below.journals, ledgers or below.ledgers)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for one in text.split(",") if (name := one.strip()))


def _with_autorecovery(file: Any, tls: Any, *, enabled: bool) -> Callable[[Any, str, str], Any]:
    """Return a function that adds autorecovery to bookies, given their cluster's address and a name."""
    from pyledger.config.autorecovery import AutoRecoveryConfig
    from pyledger.config.bookkeeper_client import BookkeeperConfig
    from pyledger.servers.autorecovery.in_bookie import BookiesWithAutoRecovery

    config, client = file.load(AutoRecoveryConfig, "autorecovery"), file.load(BookkeeperConfig, "bookkeeper")

    def add_autorecovery(bookies: Any, metadata: str, name: str) -> Any:
        if not enabled:
            return bookies
        return BookiesWithAutoRecovery(bookies, metadata, name, config, client, tls)

    return add_autorecovery
