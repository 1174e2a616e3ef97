"""`pyledger sim`: play histories of a protocol in a world of faults."""

import click

from pyledger.cli.output import emit, tell
from pyledger.cli.parameters import json_option
from pyledger.errors import EXIT_PROBLEM

EXAMPLES = """\b
Examples:
  pyledger sim --protocol raft --seed 7 --nodes 5 --ticks 1000
  pyledger sim --seed 1 --seeds 20
"""


@click.command("sim", epilog=EXAMPLES)
@click.option("--protocol", type=click.Choice(["raft"]), default="raft", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The first history.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="How many histories.")
@click.option(
    "--nodes", type=click.IntRange(1, 15), default=5, show_default=True, help="Members of the group."
)
@click.option(
    "--ticks", type=click.IntRange(min=1), default=1000, show_default=True, help="Time of trouble, in 10 ms."
)
@click.option("--real-store", is_flag=True, help="Let members write real files, in a temporary folder.")
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
    """Run a group of members with lost frames, crashes, slow disks, damage and wrong clocks.

    The same seed is the same history on every machine; its trace says so. A history in which a rule was
    broken, or after which the group does not get on, ends with its last events, and exit code 1.
    """
    import tempfile
    from contextlib import ExitStack
    from dataclasses import asdict
    from pathlib import Path

    from pyledger.simulator.raft_group import RaftGroup

    del protocol
    for one in range(seed, seed + seeds):
        try:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if real_store else None
                group = RaftGroup(one, nodes, folder=folder)
                report = group.run(ticks)
        except AssertionError as error:
            for line in group.world.log[-50:]:
                tell(line)
            found = {"seed": one, "nodes": nodes, "ticks": ticks, "broken": str(error)}
            if as_json:
                emit({**found, "trace": group.world.digest.hexdigest()})
            else:
                tell(f"seed {one}, {nodes} nodes, {ticks} ticks: {error}")
            ctx.exit(EXIT_PROBLEM)
        if as_json:
            emit(asdict(report))
        else:
            click.echo(
                f"seed {one}: {report.committed} entries in {report.terms} terms, "
                f"{report.acknowledged} acknowledged, {report.reads} reads, {report.crashes} crashes, "
                f"trace {report.trace[:16]}"
            )
