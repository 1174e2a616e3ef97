"""Access control: checks the signature of each request and the permissions of its user.

Source: RocketMQ auth/.../authentication/builder/DefaultAuthenticationContextBuilder.java;
acl/.../plain/PlainAccessValidator.java.
"""

import hmac
import logging
from collections.abc import Iterable, Mapping

from pyledger.errors import WireError
from pyledger.log_events import logger
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.auth.model import AuthRules, Need, ResourceKind, User
from pyledger.protocol.auth.required_permissions import MAKE, consuming, needs_of
from pyledger.servers.broker.addresses import peer_of
from pyledger.servers.broker.auth.send_permission import USER
from pyledger.servers.broker.context import Method, Reply
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat
from pyledger.wire.remoting.bodies.membership import LockBatchRequest
from pyledger.wire.remoting.bodies.pop import BatchAckRequest
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.signature import ACCESS_KEY, SIGNATURE, sign
from pyledger.wire.remoting.versions import V4_9_3

log = logger("broker")

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
CLOSED = "the connection is closed"
NOBODY = User("", "no user has this secret", enabled=False)
"""Checked like a user, so that the time of a response does not reveal whether a name is known."""


class Authorizer:
    """Checks signatures and permissions."""

    def __init__(self, rules: AuthRules, cluster: str) -> None:
        """Take the rules of a file, and the name of the broker's cluster."""
        self._rules = rules
        self._cluster = cluster

    def checked(self, method: Method, *, changes: bool) -> Method:
        """Wrap a method in the check of signature and permissions."""

        def handle(connection: Connection, request: RemotingCommand) -> Reply:
            problem = self.problem(connection, request, changes=changes)
            if problem is None:
                return method(connection, request)
            return refused(connection, request, problem)

        return handle

    def denied(
        self, connection: Connection, request: RemotingCommand, needs: Iterable[Need]
    ) -> RemotingCommand | None:
        """Return the rejection of a checked request that needs further permissions; None: it has them."""
        peer, name = peer_of(connection), request.ext_fields.get(ACCESS_KEY)
        if peer is None:
            return refused(connection, request, CLOSED)
        if self._rules.trusts(peer[0], name):
            return None
        user = self._rules.user(name or "") or NOBODY
        problem = self._rules.problem(user, needs, peer[0])
        return None if problem is None else refused(connection, request, problem)

    def problem(self, connection: Connection, request: RemotingCommand, *, changes: bool) -> str | None:
        """Return why a request is rejected; None: it is allowed."""
        peer = peer_of(connection)
        if peer is None:
            return CLOSED
        address = peer[0]
        name = request.ext_fields.get(ACCESS_KEY)
        if self._rules.trusts(address, name):
            connection.data[USER] = name
            return None
        if not name:
            return "username cannot be null. Sign the request with an access key and its secret."
        user = self._rules.user(name) or NOBODY
        right = signature_is_right(request, user.secret)
        if not (right and user.enabled):
            return f"the signature of user {name[:100]!r} is wrong, or the user is unknown or disabled"
        connection.data[USER] = name
        return self._rules.problem(user, self._needs(request, changes=changes), address)

    def _needs(self, request: RemotingCommand, *, changes: bool) -> list[Need]:
        try:
            found = needs_in_body(request)
        except WireError:
            # Its method will fail as well and report the error.
            found = None
        if found is not None:
            return found
        return needs_of(request.code, request.ext_fields, self._cluster, changes=changes)


def refused(connection: Connection, request: RemotingCommand, problem: str) -> RemotingCommand:
    """Return the rejection of a request that its user may not send."""
    connection.report(log, logging.WARNING, "access denied", code=request.code, problem=problem)
    return request.response(ResponseCode.NO_PERMISSION, problem)


def signature_is_right(request: RemotingCommand, secret: str) -> bool:
    """Return whether a request has the signature that a secret gives."""
    fields: Mapping[str, str] = request.ext_fields
    if request.version <= V4_9_3:
        # Clients of these versions add the field after they have signed.
        fields = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    expected = sign(fields, request.body, secret)
    return hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode("utf-8", "replace"))


def needs_in_body(request: RemotingCommand) -> list[Need] | None:
    """Return the permissions for the groups and topics in a body; None for requests that name them in fields.

    Raises:
        WireError: the body cannot be read.
    """
    if request.code == RequestCode.HEART_BEAT:
        return [
            need
            for one in request.body_as(Heartbeat).consumer_data_set
            for need in consuming(
                one.group_name or "", [sub.topic or "" for sub in one.subscription_data_set]
            )
        ]
    if request.code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        locks = request.body_as(LockBatchRequest)
        return consuming(locks.consumer_group or "", [queue.topic for queue in locks.mq_set])
    if request.code == RequestCode.BATCH_ACK_MESSAGE:
        acks = BatchAckRequest.decode(request.body).acks
        return [need for one in acks for need in consuming(one.consumer_group or "", [one.topic or ""])]
    if request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP and len(request.body):
        return [Need(ResourceKind.GROUP, request.body_as(SubscriptionGroup).name, MAKE)]
    return None
