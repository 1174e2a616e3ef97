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
    """What is done with a resource."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(StrEnum):
    """What is guarded."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


@lazy_dataclass()
class Need:
    """One right that a request needs: any of some actions on a resource."""

    kind: ResourceKind
    name: str
    any_of: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{' or '.join(self.any_of)} on {self.kind}:{self.name}"


@lazy_dataclass()
class User:
    """Somebody who signs requests."""

    name: str
    secret: str
    superuser: bool = False
    enabled: bool = True

    def __repr__(self) -> str:
        return f"User({self.name!r})"


@lazy_dataclass()
class Objection:
    """Why users or policies are not changed: the code and the remark of the response."""

    code: ResponseCode
    remark: str


class AuthRules(Protocol):
    """Decides; one class for each form of the file."""

    def user(self, name: str) -> User | None:
        """The user with a name."""

    def trusts(self, address: str, name: str | None) -> bool:
        """Whether requests from an address need no signature, from anybody or from who says to be a user."""

    def problem(self, user: User, needs: Iterable[Need], address: str) -> str | None:
        """Why a user may not make a request from an address; None: it may."""
