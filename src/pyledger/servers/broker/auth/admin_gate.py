"""Rejects requests that change the broker unless the setting `admin_enabled` allows them.

With access rules a user who has the permission may send them from any address; without rules, only clients
on the same machine may.

Differs: upstream takes them from every client.
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
"""Not logged: anyone who has a whole signed request can send it again."""
DISABLED = "requests that change the broker are rejected; run it with admin_enabled = true to allow them"
REMOTE = (
    "requests that change the broker are rejected from other machines unless they are signed; "
    "set acl_path to a file with users"
)


def guarded(context: BrokerContext, method: Method) -> Method:
    """Wrap a method that changes the broker in a check of the client."""

    def handle(connection: Connection, request: RemotingCommand) -> Reply:
        problem = None
        if not context.config.admin_enabled:
            problem = DISABLED
        elif context.access_rules is None and not is_local(connection):
            problem = REMOTE
        if problem is not None:
            connection.report(log, logging.WARNING, "change rejected", code=request.code)
            return request.response(ResponseCode.NO_PERMISSION, problem)
        fields = {name: value for name, value in request.ext_fields.items() if name not in SECRET_FIELDS}
        client = {"peer": connection.remote_address, "user": request.ext_fields.get(ACCESS_KEY)}
        event(log, logging.INFO, "change requested", code=request.code, **client, fields=fields)
        return method(connection, request)

    return handle


def denied(
    context: BrokerContext, connection: Connection, request: RemotingCommand, topic: str, *actions: str
) -> RemotingCommand | None:
    """Return the rejection of a request for a topic that only the store knows; None: it is allowed.

    The user needs the permission for one of the actions, such as `Sub`.
    """
    if context.access_rules is None:
        return None
    from pyledger.protocol.auth.model import Action, ResourceKind  # noqa: PLC0415
    from pyledger.protocol.auth.required_permissions import need_of  # noqa: PLC0415
    from pyledger.servers.broker.auth.authorizer import (  # noqa: PLC0415 - only with rules
        Authorizer,
    )

    need = need_of(ResourceKind.TOPIC, topic, tuple(map(Action, actions)))
    return Authorizer(context.access_rules, context.config.cluster).denied(connection, request, (need,))


def is_local(connection: Connection) -> bool:
    """Return whether a client is on this machine."""
    peer = peer_of(connection)
    return peer is not None and is_loopback(peer[0])


def is_loopback(address: str) -> bool:
    """Return whether an address literal is a loopback address."""
    return ip_address(address).is_loopback
