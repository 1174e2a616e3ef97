"""Name servers with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/namesrv/*.java, command/topic/UpdateOrderConfCommand.java.
"""

from typing import Any

import click

from pyledger.cli.mqadmin.brokers import print_settings, properties_text
from pyledger.cli.mqadmin.verb import TOPIC, Printer, verb
from pyledger.cli.output import WrongUseError
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.route import ORDER_TOPIC_NAMESPACE
from pyledger.wire.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

VERBS: dict[str, click.Command] = {}
BROKER_NAME = click.option("-b", "--brokerName", "broker_name", required=True, help="Name of the broker.")
NAMESPACE = click.option("-s", "--namespace", required=True, help="Namespace of the key.")
KEY = click.option("-k", "--key", required=True, help="The key.")


@verb("wipeWritePerm", BROKER_NAME, table=VERBS)
async def wipe_write(admin: Any, out: Printer, broker_name: str) -> None:
    """Remove the write permission of a broker at all name servers."""
    header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
    for server in admin.client.name_server_addresses:
        answer = await admin.request(server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        count = answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count
        print_change(out, "wipe", broker_name, server, count)


@verb("addWritePerm", BROKER_NAME, table=VERBS)
async def add_write(admin: Any, out: Printer, broker_name: str) -> None:
    """Restore the write permission of a broker."""
    header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
    for server in admin.client.name_server_addresses:
        answer = await admin.request(server, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        count = answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count
        print_change(out, "add", broker_name, server, count)


def print_change(out: Printer, what: str, broker_name: str, server: str, count: int) -> None:
    """Print the number of changed topics."""
    line = f"{what} write perm of broker[{broker_name}] in name server[{server}] OK, {count}"
    out.done(line, brokerName=broker_name, nameServer=server, topics=count)


@verb("updateKvConfig", NAMESPACE, KEY, click.option("-v", "--value", required=True), table=VERBS)
async def put_value(admin: Any, out: Printer, namespace: str, key: str, value: str) -> None:
    """Store a value at all name servers."""
    await put_pair(admin, namespace, key, value)
    out.done("create or update kv config to namespace success.", namespace=namespace, key=key, value=value)


async def put_pair(admin: Any, namespace: str, key: str, value: str) -> None:
    """Store a value at all name servers."""
    header = PutKVConfigRequestHeader(namespace=namespace.strip(), key=key.strip(), value=value.strip())
    for server in admin.client.name_server_addresses:
        await admin.request(server, RequestCode.PUT_KV_CONFIG, header)


@verb("deleteKvConfig", NAMESPACE, KEY, table=VERBS)
async def delete_value(admin: Any, out: Printer, namespace: str, key: str) -> None:
    """Delete a value at all name servers."""
    await delete_pair(admin, namespace, key)
    out.done("delete kv config from namespace success.", namespace=namespace, key=key)


async def delete_pair(admin: Any, namespace: str, key: str) -> None:
    """Delete a value at all name servers."""
    header = DeleteKVConfigRequestHeader(namespace=namespace.strip(), key=key.strip())
    for server in admin.client.name_server_addresses:
        await admin.request(server, RequestCode.DELETE_KV_CONFIG, header)


@verb("getNamesrvConfig", table=VERBS)
async def get_config(admin: Any, out: Printer) -> None:
    """Show the settings of all name servers."""
    for server in admin.client.name_server_addresses:
        answer = await admin.request(server, RequestCode.GET_NAMESRV_CONFIG)
        print_settings(out, server, str(answer.body, "utf-8", "replace"))


@verb(
    "updateNamesrvConfig",
    click.option("-k", "--key", required=True, help="Name of the setting."),
    click.option("-v", "--value", required=True, help="Its value."),
    table=VERBS,
)
async def update_config(admin: Any, out: Printer, key: str, value: str) -> None:
    """Change a setting of all running name servers. The change is not saved."""
    servers = admin.client.name_server_addresses
    for server in servers:
        await admin.request(server, RequestCode.UPDATE_NAMESRV_CONFIG, body=properties_text(key, value))
    out.say(f"update name server config success![{', '.join(servers)}]")
    out.done(f"{key} : {value}", nameServers=servers, key=key, value=value)


@verb(
    "updateOrderConf",
    TOPIC,
    click.option("-m", "--method", type=click.Choice(["put", "get", "delete"]), required=True),
    click.option("-v", "--orderConf", "value", help="broker-a:4;broker-b:4"),
    table=VERBS,
)
async def order_config(admin: Any, out: Printer, topic: str, method: str, value: str | None) -> None:
    """Store, show or delete the queues of an ordered topic."""
    fields = {"topic": topic, "method": method}
    if method == "get":
        header = GetKVConfigRequestHeader(namespace=ORDER_TOPIC_NAMESPACE, key=topic)
        answer = await admin.request(None, RequestCode.GET_KV_CONFIG, header)
        found = answer.header(GetKVConfigResponseHeader).value
        line = f"get orderConf success. topic=[{topic}], orderConf=[{found}] "
        out.done(line, **fields, orderConf=found)
    elif method == "put":
        if not value:
            raise WrongUseError("give the queues with -v broker-a:4;broker-b:4")
        await put_pair(admin, ORDER_TOPIC_NAMESPACE, topic, value)
        line = f"update orderConf success. topic=[{topic}], orderConf=[{value}]"
        out.done(line, **fields, orderConf=value)
    else:
        await delete_pair(admin, ORDER_TOPIC_NAMESPACE, topic)
        out.done(f"delete orderConf success. topic=[{topic}]", **fields)
