"""`pyledger sim`: play histories of a protocol in a world of faults."""

from typing import Any

import click

from pyledger.cli.output import emit, tell
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
@click.option("--seed", type=Number(), default=1, show_default=True, help="The first history.")
@click.option("--seeds", type=Number(1), default=1, show_default=True, help="How many histories.")
@click.option(
    "--nodes",
    type=Number(1, 15),
    default=5,
    show_default=True,
    help="Members of the group, bookies, or a master and its slaves.",
)
@click.option("--ticks", type=Number(1), default=1000, show_default=True, help="Time of trouble, in 10 ms.")
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
    """Run a group, bookies and their clients, or a master and slaves, with lost frames, crashes, slow disks.

    The same seed is the same history on every machine; its trace says so. A history in which a rule was
    broken, or after which the group does not get on, ends with its last events, and exit code 1.
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
            history = _history(protocol, one, nodes, folder)
            try:
                report = history.run(ticks)
            except AssertionError as error:
                found = {"seed": one, "nodes": nodes, "ticks": ticks, "broken": str(error)}
                _tell_breach(history, found, as_json=as_json)
                ctx.exit(EXIT_PROBLEM)
        if as_json:
            emit(asdict(report))
        else:
            click.echo(f"seed {one}: {report}")


def _history(protocol: str, seed: int, nodes: int, folder: Any) -> Any:
    """A history that has not begun: of a DLedger group, of a master and slaves, or of ledgers."""
    if protocol == "dledger":
        from pyledger.simulator.dledger.cluster import DLedgerGroup

        return DLedgerGroup(seed, nodes, folder=folder)
    if protocol == "ha":
        from pyledger.simulator.ha.run import HaRun

        return HaRun(seed, nodes)
    from pyledger.simulator.bookkeeper.run import LedgerRun

    return LedgerRun(seed, nodes)


def _tell_breach(history: Any, found: dict[str, Any], *, as_json: bool) -> None:
    """The last events, and which rule was broken."""
    for line in history.world.log[-50:]:
        tell(line)
    if as_json:
        emit({**found, "trace": history.world.digest.hexdigest()})
    else:
        tell("seed {seed}, {nodes} nodes, {ticks} ticks: {broken}".format(**found))
