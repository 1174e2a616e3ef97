"""Headers of requests about users and policies.

Source: RocketMQ remoting/.../protocol/header/CreateUserRequestHeader.java, ListUsersRequestHeader.java,
CreateAclRequestHeader.java, DeleteAclRequestHeader.java, ListAclsRequestHeader.java.
"""

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header


@lazy_dataclass(kw_only=True)
class UserRequestHeader(Header):
    """3001, 3002, 3003, 3004: a user."""

    username: str | None = None


@lazy_dataclass(kw_only=True)
class ListUsersRequestHeader(Header):
    """3005: users."""

    filter: str | None = None
    """Part of the name."""


@lazy_dataclass(kw_only=True)
class AclRequestHeader(Header):
    """3006, 3007, 3009: the policies of a subject."""

    subject: str | None = None
    """`User:name`."""


@lazy_dataclass(kw_only=True)
class DeleteAclRequestHeader(Header):
    """3008: forget policies."""

    subject: str | None = None
    policy_type: str | None = None
    """`Custom`, which is meant without it, or `Default`."""
    resource: str | None = None
    """Missing: all policies of the subject."""


@lazy_dataclass(kw_only=True)
class ListAclsRequestHeader(Header):
    """3010: policies."""

    subject_filter: str | None = None
    resource_filter: str | None = None
