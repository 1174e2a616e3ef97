"""`pyledger ha`: masters and slaves, and who is which."""

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
    """Masters and slaves: how far they are, and who is master."""


@command.command("status")
@click.argument("address", metavar="HOST:PORT")
@network_options
@json_option
def status(address: str, namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """How a master's slaves, or a slave itself, stand."""
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
    help="What it becomes: whether sends wait for a slave. [default: what its master was; to be given "
    "where the slave has not heard that]",
)
@click.option("--force", is_flag=True, help="Although the master is alive, or messages would be lost.")
@network_options
@json_option
def promote(
    address: str, role: str | None, force: bool, namesrv: str, access_key: str, secret_key: str, as_json: bool
) -> None:
    """Make a slave the master, unless the old one is alive or had more.

    The old master must come back as a slave only. The broker has to allow changes (admin_enabled).
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
    """Make a master a slave: what its next master does not have is cut from its log and kept aside."""
    from pyledger.client.admin.ha import ReplicationAdmin

    async def work() -> Any:
        async with ReplicationAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.demote(address, broker_id)

    show(run_client(work()).document(), as_json)


def show(table: dict[str, Any], as_json: bool) -> None:
    """One object, or a line for each fact."""
    if as_json:
        emit(table)
        return
    for name, value in table.items():
        write_line(f"{name}\t{value}")
