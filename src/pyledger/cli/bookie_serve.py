"""`pyledger bookie serve`: run a bookie."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pyledger.cli.output import CannotReachError
from pyledger.cli.serving import (
    begin_start,
    config_option,
    listen_option,
    log_level_option,
    log_to_stderr,
    serve,
)

EXAMPLES = """\b
Examples:
  pyledger bookie serve ./bookies --dev 3
  pyledger bookie serve /var/bookie --metadata zk://127.0.0.1:2181/ledgers
  pyledger bookie serve /var/bookie --metadata zk://127.0.0.1:2181/ledgers --ledgers /disk1 --ledgers /disk2
"""


@click.command("serve", epilog=EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--dev", "count", type=click.IntRange(1, 99), help="So many bookies in this process, with metadata."
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
    type=click.Path(file_okay=False),
    help="Folder of a journal; give one for each disk.  [default: FOLDER/journal]",
)
@click.option(
    "--ledgers",
    multiple=True,
    type=click.Path(file_okay=False),
    help="Folder of entry logs and indexes; give one for each disk.  [default: FOLDER/ledgers]",
)
@config_option
@log_level_option
def command(
    folder: Path,
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

    FOLDER is made where it is missing. Clients of BookKeeper find the bookie through `--metadata`. With
    `--dev N` there are N bookies on free ports of loopback and a cluster in FOLDER/metadata.db; the line is
    then `READY bookies sqlite:FILE`, which is what clients are given.
    """
    begin_start()
    if (count is None) == (metadata is None):
        raise click.UsageError("give either --metadata or --dev")
    if count is not None and (journals or ledgers):
        raise click.UsageError("with --dev all folders are below FOLDER")
    try:
        from pyledger.runtime.bookie_group import BookieGroup
        from pyledger.runtime.bookie_server import BookieServer
    except ImportError as error:
        raise CannotReachError(str(error)) from error
    import logging

    from pyledger.config.bookie import BookieConfig
    from pyledger.config.loader import ConfigFile
    from pyledger.config.net import TlsConfig
    from pyledger.log import event, logger
    from pyledger.metadata.cluster import locate

    log_to_stderr(log_level)
    file = ConfigFile(config_path)
    config, tls = file.load(BookieConfig, "bookie"), file.load(TlsConfig, "tls")
    beside = _with_autorecovery(file, tls, enabled=config.auto_recovery_daemon_enabled)
    for key in file.left({}):
        event(logger("bookie"), logging.WARNING, "setting has no effect here", setting=key)
    if count is not None:
        group_of = count
        for setting in ("journal_directories", "ledger_directories"):
            if getattr(config, setting):
                event(logger("bookie"), logging.WARNING, "setting has no effect here", setting=setting)

        def group() -> Any:
            made = BookieGroup(folder, group_of, config=config, tls=tls)
            return beside(made, made.address, "bookies")

        serve("bookies", group)
        return
    host, port = listen or ("127.0.0.1", 3181)

    def bookie() -> Any:
        made = BookieServer(
            _paths(folder, config, journals, ledgers),
            config=config,
            host=host,
            port=port,
            tls=tls,
            cluster=locate(metadata or "", make=False),
            bookie_id=bookie_id,
            advertised_host=advertise,
        )
        return beside(made, metadata or "", bookie_id or f"{advertise or host}:{port}")

    serve("bookie", bookie)


def _paths(folder: Path, config: Any, journals: tuple[str, ...], ledgers: tuple[str, ...]) -> Any:
    """Where the bookie keeps what: as the command says, else as the settings say, else below its folder."""
    from pyledger.store.bookie_folder import BookiePaths

    below = BookiePaths.below(folder)
    journals = journals or _listed(config.journal_directories) or below.journals
    return BookiePaths(journals, ledgers or _listed(config.ledger_directories) or below.ledgers)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for one in text.split(",") if (name := one.strip()))


def _with_autorecovery(file: Any, tls: Any, *, enabled: bool) -> Callable[[Any, str, str], Any]:
    """What puts autorecovery beside bookies: given them, the address of their cluster and a name."""
    from pyledger.autorecovery.beside import BookiesWithAutoRecovery
    from pyledger.config.autorecovery import AutoRecoveryConfig
    from pyledger.config.ledger import LedgerConfig

    config, client = file.load(AutoRecoveryConfig, "autorecovery"), file.load(LedgerConfig, "ledger")

    def beside(bookies: Any, metadata: str, name: str) -> Any:
        if not enabled:
            return bookies
        return BookiesWithAutoRecovery(bookies, metadata, name, config, client, tls)

    return beside
