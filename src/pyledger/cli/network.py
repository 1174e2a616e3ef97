"""Options of the commands that work over the network, and the output of messages."""

import base64
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from pyledger.cli.output import format_time

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")


def namesrv_option(*names: str) -> Callable[[F], F]:
    """Return the option that names the name servers."""
    return click.option(
        *names,
        metavar="HOST:PORT;…",
        default="",
        help="Name servers. [default: the variable NAMESRV_ADDR, else 127.0.0.1:9876]",
    )


KEY_OPTIONS = (
    click.option("--access-key", default="", help="Access key; required by brokers with authentication."),
    click.option(
        "--secret-key",
        default="",
        envvar="PYLEDGER_CLIENT_SECRET_KEY",
        show_envvar=True,
        help="Secret key of that access key; prefer the variable.",
    ),
)
OPTIONS = (namesrv_option("-n", "--namesrv"), *KEY_OPTIONS)


def network_options(function: F) -> F:
    """Add the options for name servers and keys."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def client_of_options(namesrv: str, access_key: str, secret_key: str) -> Any:
    """Return a client with these options; other settings, TLS too, come from the environment."""
    from pyledger.client.instance import ClientInstance
    from pyledger.config.client import ClientConfig
    from pyledger.config.loader import load
    from pyledger.config.net import NetConfig, TlsConfig

    given = {"name_servers": namesrv, "access_key": access_key, "secret_key": secret_key}
    config = load(ClientConfig, "client", options={name: value for name, value in given.items() if value})
    return ClientInstance(config, net=load(NetConfig, "net"), tls=load(TlsConfig, "tls"))


def run_client(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses a client until it ends."""
    from pyledger.cli.interrupts import run_loop

    return run_loop(work)


FIELDS: dict[str, Callable[[Any], str]] = {
    "t": lambda message: message.topic,
    "b": lambda message: message.broker_name,
    "q": lambda message: str(message.queue_id),
    "o": lambda message: str(message.queue_offset),
    "s": lambda message: message.body.decode("utf-8", "backslashreplace"),
    "S": lambda message: str(len(message.body)),
    "k": lambda message: message.keys or "",
    "g": lambda message: message.tags or "",
    "T": lambda message: str(message.store_timestamp),
    "d": lambda message: format_time(message.store_timestamp),
    "u": lambda message: message.unique_key or "",
    "i": lambda message: message.msg_id,
    "p": lambda message: json.dumps(message.properties, ensure_ascii=False, separators=(",", ":")),
    "%": lambda _message: "%",
}
FORMAT_HELP = (
    "%t topic, %b broker, %q queue, %o offset, %s body, %S its size, %k keys, %g tags, "
    "%T store time in ms, %d store time as ISO 8601, %u unique key, %i message id,"
    "%p properties, %% a percent sign; \\n and \\t."
)


def parse_format(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Check a format string and expand its escapes."""
    if value is None:
        return None
    for piece in value.split("%%"):
        for part in piece.split("%")[1:]:
            if part[:1] not in FIELDS:
                raise click.BadParameter(f"%{part[:1]} is unknown; the fields are {FORMAT_HELP}")
    return value.replace("\\n", "\n").replace("\\t", "\t")


def formatted(message: Any, pattern: str) -> str:
    """Format a message by a format string."""
    found = []
    parts = iter(pattern.split("%"))
    found.append(next(parts))
    for part in parts:
        if not part:  # %% is a percent sign, and text follows
            found.append("%" + next(parts, ""))
        else:
            found.append(FIELDS[part[0]](message) + part[1:])
    return "".join(found)


def received_fields(message: Any) -> dict[str, Any]:
    """Return a message as JSON fields with the names of `pyledger cat --json`."""
    try:
        body, encoding = message.body.decode("utf-8"), "utf8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode("ascii"), "base64"
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodyLength": len(message.body),
        "body": body,
        "bodyEncoding": encoding,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "msgId": message.msg_id,
        "uniqueKey": message.unique_key,
    }
