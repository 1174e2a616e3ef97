"""`pyledger mqadmin`: the commands of RocketMQ's own `mqadmin`, with its names, flags and tables."""

import difflib
import importlib
from typing import Any

import click

MODULES = {
    "topics": {
        "updateTopic": "create a topic, or change it",
        "deleteTopic": "delete a topic at brokers and name servers",
        "updateTopicPerm": "change who may use a topic",
        "topicRoute": "the brokers of a topic",
        "topicStatus": "first and next offset of each queue of a topic",
        "topicList": "all topics",
        "topicClusterList": "the clusters of a topic",
        "allocateMQ": "which queues of a topic each of some consumers would take",
        "statsAll": "messages in and out of each topic, and how many wait",
    },
    "groups": {
        "updateSubGroup": "create a consumer group, or change it",
        "deleteSubGroup": "delete a consumer group",
        "getConsumerConfig": "a consumer group as brokers have it",
        "setConsumeMode": "let a group pull or pop a topic",
        "consumerConnection": "who is in a consumer group",
        "producerConnection": "who is in a producer group",
        "producer": "all producers of a broker",
    },
    "consumers": {
        "consumerStatus": "what the consumers of a group do",
    },
    "probes": {
        "checkMsgSendRT": "how long sends to a topic take",
        "clusterRT": "how long sends to each broker take, again and again",
    },
    "traces": {
        "queryMsgTraceById": "who sent and who consumed a message, where clients write traces",
    },
    "offsets": {
        "consumerProgress": "how far groups are, and how far behind",
        "brokerConsumeStats": "how far all groups of a broker are",
        "resetOffsetByTime": "let a group go on at another place",
        "skipAccumulatedMessage": "let a group go on at the end",
        "cloneGroupOffset": "let a group stand where another one stands",
    },
    "brokers": {
        "clusterList": "all brokers, and what they do",
        "brokerStatus": "what a broker says of itself",
        "getBrokerConfig": "the settings of a broker",
        "updateBrokerConfig": "change a setting of a broker until it stops",
        "cleanExpiredCQ": "delete queue files that nothing stands behind",
        "cleanUnusedTopic": "delete what nobody uses",
        "deleteExpiredCommitLog": "delete log files whose time is over",
    },
    "messages": {
        "queryMsgById": "a message by the id that names its place",
        "queryMsgByKey": "messages by a key",
        "queryMsgByOffset": "a message by its queue offset",
        "queryMsgByUniqueKey": "a message by the id that its producer gave it",
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
        "copyUser": "copy users from a broker to another one",
        "createAcl": "say what a user may do",
        "updateAcl": "change what a user may do",
        "deleteAcl": "forget what a user may do",
        "getAcl": "what a user may do",
        "listAcl": "what all users may do",
        "copyAcl": "copy what users may do from a broker to another one",
    },
    "name_servers": {
        "wipeWritePerm": "let nobody write to a broker",
        "addWritePerm": "let all write to a broker again",
        "updateKvConfig": "store a value at the name servers",
        "deleteKvConfig": "delete a value at the name servers",
        "getNamesrvConfig": "the settings of name servers",
        "updateNamesrvConfig": "change a setting of the name servers until they stop",
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
        """All commands, by theme."""
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a command and return it."""
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
        """Name the command that was probably meant."""
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
    """Administer RocketMQ's and our own servers with the words of RocketMQ's mqadmin.

    Names, flags and tables are those of the original; --json gives JSON lines instead.
    """
