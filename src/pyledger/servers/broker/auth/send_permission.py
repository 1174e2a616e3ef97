"""The permission of a connection's user to send to a topic, which a transaction check requires."""

from pyledger.net.remoting.connection import Connection
from pyledger.protocol.auth.model import AuthRules, ResourceKind
from pyledger.protocol.auth.required_permissions import PUB, need_of
from pyledger.servers.broker.addresses import peer_of

USER = "broker.user"
"""Key in the data of a connection: the user who signed its last request."""


def may_send(rules: AuthRules, connection: Connection, topic: str) -> bool:
    """Return whether the user who signed the last request of a connection may send to a topic now."""
    peer, name = peer_of(connection), connection.data.get(USER)
    if peer is None:
        return False
    if rules.trusts(peer[0], name):
        return True
    user = rules.user(name or "")
    needs = (need_of(ResourceKind.TOPIC, topic, PUB),)
    return user is not None and user.enabled and rules.problem(user, needs, peer[0]) is None
