"""`pyledger ha`: show and change the roles of masters and slaves."""

from typing import Any

import click

from pyledger.cli.network import client_of_options, network_options, run_client
from pyledger.cli.output import emit, write_line
from pyledger.cli.parameters import Number, json_option

EXAMPLES = """\b
Examples:
  pyledger ha status 127.0.0.1:10911
  pyledger ha promote 127.0.0.1:10921 --json
  pyledger ha demote 127.0.0.1:10911 --id 1
"""


@click.group("ha", epilog=EXAMPLES)
def command() -> None:
    """Masters and slaves: roles, replication lag, promotion."""


@command.command("status")
@click.argument("address", metavar="HOST:PORT")
@network_options
@json_option
def status(address: str, namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """Show the replication status of a master's slaves, or of one slave."""
    from pyledger.client.admin.ha import ReplicationAdmin

    async def work() -> Any:
        async with ReplicationAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.status(address)

    show(run_client(work()).document(), as_json)


@command.command("promote")
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--role",
    type=click.Choice(["ASYNC_MASTER", "SYNC_MASTER"]),
    help="New role: whether sends wait for a slave. [default: the role of its master; required"
    "if the slave does not know it]",
)
@click.option("--force", is_flag=True, help="Promote even if the master is alive or messages would be lost.")
@network_options
@json_option
def promote(
    address: str, role: str | None, force: bool, namesrv: str, access_key: str, secret_key: str, as_json: bool
) -> None:
    """Make a slave the master, unless the old master is alive or has more messages.

    The old master may return only as a slave. The broker must allow changes (admin_enabled).
    """
    from pyledger.client.admin.ha import ReplicationAdmin

    async def work() -> Any:
        async with ReplicationAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.promote(address, role or "", force=force)

    show(run_client(work()).document(), as_json)


@command.command("demote")
@click.argument("address", metavar="HOST:PORT")
@click.option("--id", "broker_id", type=Number(1), default=1, show_default=True)
@network_options
@json_option
def demote(
    address: str, broker_id: int, namesrv: str, access_key: str, secret_key: str, as_json: bool
) -> None:
    """Make a master a slave: records that the new master does not have are truncated and kept aside."""
    from pyledger.client.admin.ha import ReplicationAdmin

    async def work() -> Any:
        async with ReplicationAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.demote(address, broker_id)

    show(run_client(work()).document(), as_json)


def show(table: dict[str, Any], as_json: bool) -> None:
    """Print one JSON object, or one line per value."""
    if as_json:
        emit(table)
        return
    for name, value in table.items():
        write_line(f"{name}\t{value}")
