"""The list of commands. The module of each is imported only when it is used."""

import importlib
from typing import Any

import click

from pyledger.cli.streams import discard_output

# By name of a command: its module in this package, with `:function` unless that is `command`; its summary.
COMMANDS = {
    "info": ("store.info", "what a store holds: files, offsets, topics, queues, times"),
    "cat": ("store.cat", "print messages"),
    "grep": ("store.grep", "print messages whose body or properties match"),
    "query": ("store.query", "find messages by key or id"),
    "verify": ("store.verify", "check every record, queue unit and index entry"),
    "repair": ("store.repair", "truncate a damaged store; removed bytes are kept aside"),
    "rebuild": ("store.rebuild", "rebuild consume queues and index from the log"),
    "archive": ("store.archive", "compress sealed log files into LZ4 segments"),
    "unarchive": ("store.archive:unarchive", "restore compressed log files, byte for byte"),
    "export": ("store.export", "copy messages to JSON lines, CSV, Arrow or Parquet"),
    "write": ("store.write", "append messages from JSON lines or CSV"),
    "dump": ("store.dump", "show one store file, annotated"),
    "namesrv": ("servers.namesrv", "run a name server for RocketMQ's brokers and clients"),
    "broker": ("servers.broker", "run a broker for RocketMQ's clients"),
    "serve": ("servers.serve", "run name server and broker in one process, for development"),
    "produce": ("rocketmq.produce", "send messages over the network"),
    "consume": ("rocketmq.consume", "print messages over the network as they arrive"),
    "topic": ("rocketmq.topic", "list, show, create and delete topics of running brokers"),
    "group": ("rocketmq.group", "consumer groups: list, show lag, create, delete, reset offsets"),
    "ha": ("rocketmq.ha", "masters and slaves: roles, replication lag, promotion"),
    "cluster": ("rocketmq.cluster", "list running brokers and show their status"),
    "mqadmin": ("mqadmin", "the commands of RocketMQ's mqadmin, with its names and flags"),
    "dledger": ("dledger.dledger", "replicated logs of DLedger: members, appends, folders"),
    "ledger": ("bookkeeper.ledger", "ledgers of BookKeeper: write, read, follow, recover, list, delete"),
    "bookie": ("bookkeeper.bookie", "read and check the folders of a BookKeeper bookie"),
    "autorecovery": ("bookkeeper.autorecovery", "re-replicate lost entries; decommission a bookie"),
    "sim": ("sim", "simulate a protocol under injected faults"),
    "bench": ("store.bench", "measure appends and reads on this machine"),
}

NEWCOMER = """pyledger reads and writes Apache RocketMQ stores. Start with these five commands:

  pyledger info STORE                       what is in it
  pyledger cat STORE --limit 10             the first messages
  pyledger query STORE --topic T --key K    messages by key
  pyledger verify STORE                     check that it is valid
  pyledger write STORE --topic T FILE       append messages

STORE is the folder that holds `commitlog`. `pyledger --help` lists all commands,
`pyledger COMMAND --help` explains one.
"""


class LazyGroup(click.Group):
    """Imports a command's module when the command is used, so that start-up stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """All commands, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a command and return its `command`."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        found = importlib.import_module(f"pyledger.cli.{module}")
        command: click.Command = getattr(found, function or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing one of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_module, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the command with the closest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if close and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from None
            raise

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Do as click does, but accept a closed pipe when help is printed."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            raise _pipe_closed() from None

    def invoke(self, ctx: click.Context) -> Any:
        """Do as click does, but accept a closed output pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _pipe_closed() from None


def _pipe_closed() -> click.exceptions.Exit:
    """Return a successful exit: the reader of the output closed the pipe."""
    discard_output()
    return click.exceptions.Exit(0)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 found a problem, 2 usage, 3 cannot reach or open, 130 interrupted.",
)
@click.version_option(package_name="pyledger", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Read, check, query and write Apache RocketMQ stores."""
    if ctx.invoked_subcommand is None:
        click.echo(NEWCOMER, nl=False)
