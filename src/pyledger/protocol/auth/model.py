"""Users, resources and actions.

Source: RocketMQ auth/.../authentication/model/User.java, authorization/model/Resource.java;
common/.../action/Action.java.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import ResponseCode


class Action(StrEnum):
    """Action on a resource."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(StrEnum):
    """Type of a resource."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


@lazy_dataclass()
class Need:
    """One permission that a request needs: any of some actions on a resource."""

    kind: ResourceKind
    name: str
    any_of: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{' or '.join(self.any_of)} on {self.kind}:{self.name}"


@lazy_dataclass()
class User:
    """A user who signs requests."""

    name: str
    secret: str
    superuser: bool = False
    enabled: bool = True

    def __repr__(self) -> str:
        return f"User({self.name!r})"


@lazy_dataclass()
class Objection:
    """Reason why users or policies are not changed: code and remark of the response."""

    code: ResponseCode
    remark: str


class AuthRules(Protocol):
    """Decides on requests; one class for each form of the file."""

    def user(self, name: str) -> User | None:
        """Return the user with a name."""

    def trusts(self, address: str, name: str | None) -> bool:
        """Whether requests from an address need no signature, unsigned or under a user's name."""

    def problem(self, user: User, needs: Iterable[Need], address: str) -> str | None:
        """Return why a user may not send a request from an address; None: it may."""
