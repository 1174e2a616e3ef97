"""Permission to change a broker: such requests are rejected unless a setting allows them.

With access control whoever has the right may, from anywhere; without, whoever is on the same machine.

Differs: upstream answers them to whoever reaches the port.
"""

import logging
from ipaddress import ip_address

from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.addresses import peer_of
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

log = logger("broker")

SECRET_FIELDS = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
"""Not logged: a signed request can be sent again by who has all of it."""
REFUSED = "requests that change the broker are refused; run it with admin_enabled = true to allow them"
REFUSED_REMOTE = (
    "requests that change the broker are refused from other machines unless they are signed; "
    "set acl_path to name who may"
)


def guarded(context: BrokerContext, method: Method) -> Method:
    """A method that changes the broker, behind the question who asks."""

    def handle(connection: Connection, request: RemotingCommand) -> Reply:
        problem = None
        if not context.config.admin_enabled:
            problem = REFUSED
        elif context.access_rules is None and not is_local(connection):
            problem = REFUSED_REMOTE
        if problem is not None:
            connection.report(log, logging.WARNING, "change refused", code=request.code)
            return request.response(ResponseCode.NO_PERMISSION, problem)
        fields = {name: value for name, value in request.ext_fields.items() if name not in SECRET_FIELDS}
        who = {"peer": connection.remote_address, "user": request.ext_fields.get(ACCESS_KEY)}
        event(log, logging.INFO, "change asked", code=request.code, **who, fields=fields)
        return method(connection, request)

    return handle


def denied(
    context: BrokerContext, connection: Connection, request: RemotingCommand, topic: str, *actions: str
) -> RemotingCommand | None:
    """The answer to a request whose user has no right to a topic that only the store could tell.

    None: it may do one of the actions, such as `Sub`.
    """
    if context.access_rules is None:
        return None
    from pyledger.protocol.auth.model import Action, ResourceKind  # noqa: PLC0415
    from pyledger.protocol.auth.required_permissions import need_of  # noqa: PLC0415
    from pyledger.servers.broker.auth.authorizer import (  # noqa: PLC0415 - only for who has rules
        Authorizer,
    )

    need = need_of(ResourceKind.TOPIC, topic, tuple(map(Action, actions)))
    return Authorizer(context.access_rules, context.config.cluster).denied(connection, request, (need,))


def is_local(connection: Connection) -> bool:
    """Whether a client is on this machine."""
    peer = peer_of(connection)
    return peer is not None and is_loopback(peer[0])


def is_loopback(address: str) -> bool:
    """Whether an address literal is this machine's own."""
    return ip_address(address).is_loopback
