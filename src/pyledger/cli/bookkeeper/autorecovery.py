"""`pyledger autorecovery`: re-replicates what a cluster of bookies lost."""

from pathlib import Path

import click

from pyledger.cli.bookkeeper.options import client_of, metadata_option, require_protobuf
from pyledger.cli.network import run_client
from pyledger.cli.output import counted, emit, print_status, report, write_line
from pyledger.cli.parameters import INT32_MAX, Number, json_option
from pyledger.cli.servers.serving import (
    begin_start,
    config_option,
    log_ignored,
    log_to_stderr,
    serve,
    server_options,
)

EXAMPLES = """\b
Examples:
  pyledger autorecovery serve -m zk://127.0.0.1:2181/ledgers
  pyledger autorecovery decommission -m sqlite:meta 127.0.0.1:3181
"""


@click.group("autorecovery", epilog=EXAMPLES)
def command() -> None:
    """Find ledgers that lost replicas with a bookie, and re-replicate them."""


@command.command("serve")
@metadata_option
@click.option("--id", "name", default="", help="Its name among candidates.  [default: HOST:PROCESS]")
@config_option
@server_options
def serve_command(metadata: str, name: str, config_path: Path | None, log_level: str) -> None:
    """Run a candidate for auditor and a replication worker until SIGTERM or SIGINT.

    Prints `READY autorecovery NAME` once it is running. Our bookies do the same unless
    `auto_recovery_daemon_enabled` is off.
    """
    begin_start()
    require_protobuf()
    import os
    import socket

    from pyledger.config.autorecovery import FIXED, AutoRecoveryConfig
    from pyledger.config.bookkeeper_client import BookkeeperConfig
    from pyledger.config.loader import ConfigFile
    from pyledger.config.net import TlsConfig
    from pyledger.servers.autorecovery.service import AutoRecovery

    log_to_stderr(log_level)
    file = ConfigFile(config_path)
    config, client = file.load(AutoRecoveryConfig, "autorecovery"), file.load(BookkeeperConfig, "bookkeeper")
    tls = file.load(TlsConfig, "tls")
    log_ignored(file.ignored(FIXED), "autorecovery")
    name = name or f"{socket.gethostname()}:{os.getpid()}"
    serve("autorecovery", lambda: AutoRecovery(metadata, name, config=config, client=client, tls=tls))


@command.command("enable")
@metadata_option
@json_option
def enable(metadata: str, as_json: bool) -> None:
    """Resume re-replication in the whole cluster."""
    _switch(metadata, as_json, enabled=True)


@command.command("disable")
@metadata_option
@json_option
def disable(metadata: str, as_json: bool) -> None:
    """Pause re-replication in the whole cluster, before many bookies are stopped on purpose."""
    _switch(metadata, as_json, enabled=False)


def _switch(metadata: str, as_json: bool, *, enabled: bool) -> None:
    async def work() -> bool:
        async with client_of(metadata) as client:
            changed: bool = await client.cluster.marks.set_enabled(enabled)
            return changed

    changed = run_client(work())
    text = f"{'' if changed else 'already '}{'enabled' if enabled else 'disabled'}"
    report(text, {"enabled": enabled, "changed": changed}, as_json=as_json)


@command.command("delay")
@metadata_option
@click.argument("seconds", required=False, type=Number(most=INT32_MAX))
@json_option
def delay(metadata: str, seconds: int | None, as_json: bool) -> None:
    """Print how long the auditor waits for a single lost bookie; SECONDS changes it.

    Setting it to its current value makes the auditor act on lost bookies at once.
    """

    async def work() -> int:
        async with client_of(metadata) as client:
            marks = client.cluster.marks
            if seconds is not None:
                await marks.set_delay_s(seconds)
            else:
                await marks.prepare()
            found: int = await marks.delay_s(0)
            return found

    found = run_client(work())
    emit({"delaySeconds": found}) if as_json else write_line(f"{found} s")


@command.command("decommission")
@metadata_option
@click.option("--forget", is_flag=True, help="Delete its cookie at the end: it cannot return.")
@click.argument("bookie_id", metavar="BOOKIE")
@json_option
def decommission_command(metadata: str, forget: bool, bookie_id: str, as_json: bool) -> None:
    """Re-replicate all ledgers of BOOKIE, which was stopped, and wait for the end.

    Autorecovery does the copying, so it has to run somewhere in the cluster.
    """
    from pyledger.errors import NoNodeError

    async def work() -> int:
        require_protobuf()
        from pyledger.servers.autorecovery.decommission import decommission

        async with client_of(metadata) as client:
            return await decommission(client, bookie_id, forget=forget, on_progress=_print_left)

    try:
        done = run_client(work())
    except NoNodeError:
        raise click.BadParameter(f"there is no bookie {bookie_id!r}", param_hint="BOOKIE") from None
    state = "forgotten" if forget else "no longer needed"
    report(
        f"{counted(done, 'ledger')} copied; {bookie_id} is {state}",
        {"bookieId": bookie_id, "ledgers": done, "forgotten": forget},
        as_json=as_json,
    )


def _print_left(count: int) -> None:
    print_status(f"{counted(count, 'ledger')} left")
