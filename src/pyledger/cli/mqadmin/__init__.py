"""`pyledger mqadmin`: the commands of RocketMQ's own `mqadmin`, with its names, flags and tables."""

import difflib
import importlib
from typing import Any

import click

MODULES = {
    "topics": {
        "updateTopic": "create or change a topic",
        "deleteTopic": "delete a topic at brokers and name servers",
        "updateTopicPerm": "change the permission of a topic",
        "topicRoute": "the brokers of a topic",
        "topicStatus": "first and next offset of each queue of a topic",
        "topicList": "all topics",
        "topicClusterList": "the clusters of a topic",
        "allocateMQ": "show which queues each of these consumers would take",
        "statsAll": "messages in and out of each topic, and the lag",
    },
    "groups": {
        "updateSubGroup": "create or change a consumer group",
        "deleteSubGroup": "delete a consumer group",
        "getConsumerConfig": "the configuration of a consumer group",
        "setConsumeMode": "choose whether a group pulls or pops a topic",
        "consumerConnection": "the members of a consumer group",
        "producerConnection": "the members of a producer group",
        "producer": "all producers of a broker",
    },
    "consumers": {
        "consumerStatus": "the status of a group's consumers",
    },
    "probes": {
        "checkMsgSendRT": "how long sends to a topic take",
        "clusterRT": "how long sends to each broker take, repeatedly",
    },
    "traces": {
        "queryMsgTraceById": "the producer and the consumers of a message, from its trace",
    },
    "offsets": {
        "consumerProgress": "offsets and lag of groups",
        "brokerConsumeStats": "offsets and lag of all groups of a broker",
        "resetOffsetByTime": "reset the offsets of a group to a time",
        "skipAccumulatedMessage": "move a group to the end of its queues",
        "cloneGroupOffset": "copy the offsets of a group to another group",
    },
    "brokers": {
        "clusterList": "all brokers with their load",
        "brokerStatus": "the status of a broker",
        "getBrokerConfig": "the settings of a broker",
        "updateBrokerConfig": "change a setting of a running broker (not saved)",
        "cleanExpiredCQ": "delete consume queue files whose messages are deleted",
        "cleanUnusedTopic": "delete the queues of unused topics",
        "deleteExpiredCommitLog": "delete expired log files",
    },
    "messages": {
        "queryMsgById": "a message by its message id (broker and offset)",
        "queryMsgByKey": "messages by a key",
        "queryMsgByOffset": "a message by its queue offset",
        "queryMsgByUniqueKey": "a message by its unique key (set by the producer)",
        "printMsg": "all messages of a topic",
        "printMsgByQueue": "messages of a queue",
        "consumeMessage": "messages of a topic, a queue, or at an offset",
        "queryCq": "units of a consume queue",
        "sendMessage": "send a message",
    },
    "auth": {
        "createUser": "create a user",
        "updateUser": "change password, type or status of a user",
        "deleteUser": "delete a user and the policies about it",
        "getUser": "a user",
        "listUser": "all users",
        "copyUser": "copy users from one broker to another",
        "createAcl": "create the permissions of a user",
        "updateAcl": "change the permissions of a user",
        "deleteAcl": "delete the permissions of a user",
        "getAcl": "the permissions of a user",
        "listAcl": "the permissions of all users",
        "copyAcl": "copy permissions from one broker to another",
    },
    "name_servers": {
        "wipeWritePerm": "remove the write permission of a broker",
        "addWritePerm": "restore the write permission of a broker",
        "updateKvConfig": "store a value at the name servers",
        "deleteKvConfig": "delete a value at the name servers",
        "getNamesrvConfig": "the settings of name servers",
        "updateNamesrvConfig": "change a setting of running name servers (not saved)",
        "updateOrderConf": "store, show or delete the queues of an ordered topic",
    },
}
PLACES = {name: module for module, commands in MODULES.items() for name in commands}

EXAMPLES = """\b
Examples:
  pyledger mqadmin clusterList -n 127.0.0.1:9876
  pyledger mqadmin updateTopic -t Orders -c DefaultCluster -r 8 -w 8
  pyledger mqadmin topicStatus -t Orders
"""


class Verbs(click.Group):
    """Imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return all commands, by theme."""
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a command and return the command."""
        if cmd_name not in PLACES:
            return None
        module = importlib.import_module(f"pyledger.cli.mqadmin.{PLACES[cmd_name]}")
        found: dict[str, click.Command] = module.VERBS
        return found[cmd_name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by theme without importing one of them."""
        for module, commands in MODULES.items():
            with formatter.section(module.replace("_", " ").capitalize()):
                formatter.write_dl(list(commands.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the command with the closest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            folded = {name.lower(): name for name in PLACES}
            close = difflib.get_close_matches(args[0].lower(), folded, n=1)
            if close and "Did you mean" not in error.message:
                message = f"{error.message} Did you mean {folded[close[0]]!r}?"
                raise click.UsageError(message, ctx) from None
            raise


@click.group("mqadmin", cls=Verbs, epilog=EXAMPLES)
def command(**_given: Any) -> None:
    """Administer RocketMQ's and our own servers with the commands of RocketMQ's mqadmin.

    Names, flags and tables are those of the original; --json gives JSON lines instead.
    """
