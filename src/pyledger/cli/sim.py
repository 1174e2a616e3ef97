"""`pyledger sim`: simulate a protocol under injected faults."""

from typing import Any

import click

from pyledger.cli.output import emit, print_status
from pyledger.cli.parameters import Number, json_option
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger sim --protocol dledger --seed 7 --nodes 5 --ticks 1000
  pyledger sim --protocol ledger --seed 1 --seeds 3
  pyledger sim --protocol ha --seed 4 --nodes 3
"""


@click.command("sim", epilog=EXAMPLES)
@click.option(
    "--protocol", type=click.Choice(["dledger", "ledger", "ha"]), default="dledger", show_default=True
)
@click.option("--seed", type=Number(), default=1, show_default=True, help="First seed.")
@click.option("--seeds", type=Number(1), default=1, show_default=True, help="Number of seeds to run.")
@click.option(
    "--nodes",
    type=Number(1, 15),
    default=5,
    show_default=True,
    help="Number of members, of bookies, or of brokers (one master and its slaves).",
)
@click.option(
    "--ticks", type=Number(1), default=1000, show_default=True, help="Time with faults (unit: 10 ms)."
)
@click.option("--real-store", is_flag=True, help="dledger: members write real files, in a temporary folder.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    protocol: str,
    seed: int,
    seeds: int,
    nodes: int,
    ticks: int,
    real_store: bool,
    as_json: bool,
) -> None:
    """Simulate DLedger members, bookies or brokers with lost frames, crashes and slow disks.

    The same seed gives the same run, and the same trace digest, on every machine. If a rule is broken or
    the group does not recover after the faults, the last events are printed and the exit code is 1.
    """
    import tempfile
    from contextlib import ExitStack
    from dataclasses import asdict
    from pathlib import Path

    if real_store and protocol != "dledger":
        raise click.UsageError("--real-store is for dledger")
    for one in range(seed, seed + seeds):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if real_store else None
            simulation = _create_run(protocol, one, nodes, folder)
            try:
                report = simulation.run(ticks)
            except AssertionError as error:
                found = {"seed": one, "nodes": nodes, "ticks": ticks, "broken": str(error)}
                _report_breach(simulation, found, as_json=as_json)
                ctx.exit(EXIT_PROBLEM)
        if as_json:
            emit(asdict(report))
        else:
            click.echo(f"seed {one}: {report}")


def _create_run(protocol: str, seed: int, nodes: int, folder: Any) -> Any:
    """Create a run of a DLedger group, of a master and slaves, or of ledgers."""
    if protocol == "dledger":
        from pyledger.simulator.dledger.cluster import DLedgerGroup

        return DLedgerGroup(seed, nodes, folder=folder)
    if protocol == "ha":
        from pyledger.simulator.ha.run import HaRun

        return HaRun(seed, nodes)
    from pyledger.simulator.bookkeeper.run import LedgerRun

    return LedgerRun(seed, nodes)


def _report_breach(simulation: Any, found: dict[str, Any], *, as_json: bool) -> None:
    """Print the last events and the rule that was broken."""
    for line in simulation.world.log[-50:]:
        print_status(line)
    if as_json:
        emit({**found, "trace": simulation.world.digest.hexdigest()})
    else:
        print_status("seed {seed}, {nodes} nodes, {ticks} ticks: {broken}".format(**found))
