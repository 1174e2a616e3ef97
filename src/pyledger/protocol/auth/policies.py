"""Users and policies as upstream has had them since 5.3: a policy allows or denies actions on resources.

A request is allowed if every permission that it needs is allowed. Policies of type `Custom` are checked
before those of type `Default`. Among matching entries the most specific decides: a type of resource before
any type, a whole name before a prefix, a longer prefix before a shorter one; on a tie `Allow` wins over
`Deny`, as in upstream. Without a matching entry, the request is denied.

Source: RocketMQ auth/.../authorization/chain/AclAuthorizationHandler.java, model/Policy.java,
model/PolicyEntry.java, model/Resource.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Self

from pyledger.errors import ConfigError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.protocol.auth.model import Action, Need, ResourceKind, User

ANY = "*"
USER_SUBJECT = "User:"
USER_TYPES = {"super": True, "normal": False}
USER_STATES = {"enable": True, "disable": False}
USER_NAMES = ("username", "password", "userType", "userStatus")
ENTRY_NAMES = ("resource", "actions", "sourceIps", "decision")
DECISIONS = {"allow": True, "deny": False}
POLICY_TYPES = {"custom": True, "default": False}


@lazy_dataclass()
class Entry:
    """Allows or denies some actions on one resource."""

    kind: ResourceKind | None
    """None: any."""
    name: str
    """The whole name, or the prefix without its `*` if `prefix` is set."""
    prefix: bool
    actions: frozenset[Action]
    networks: tuple[IPv4Network | IPv6Network, ...]
    """Source addresses of requests; empty: any address."""
    allow: bool
    custom: bool

    @classmethod
    def parse(cls, document: Mapping[str, Any], resource: str, *, custom: bool, place: str) -> Self:
        """Create it from an object of the file, for one of its resources.

        Raises:
            ConfigError: A word is unknown, or an address is invalid.
        """
        kind_text, separator, name = resource.partition(":")
        if resource == ANY:
            kind, name = None, ANY
        else:
            kind = word(kind_text, {one.lower(): one for one in ResourceKind}, place, "resource")
            if not separator or not name:
                raise ConfigError(
                    place, f"the resource {resource!r} names nothing", "write Topic:name or Topic:*"
                )
        actions = {one.lower(): one for one in Action}
        try:
            networks = tuple(ip_network(one, strict=False) for one in listed(document.get("sourceIps")))
        except ValueError as problem:
            raise ConfigError(place, f"a source address is none: {problem}") from None
        return cls(
            kind,
            name.removesuffix(ANY),
            name.endswith(ANY),
            frozenset(word(one, actions, place, "action") for one in listed(document.get("actions"))),
            networks,
            word(document.get("decision", "Allow"), DECISIONS, place, "decision"),
            custom,
        )

    @property
    def resource(self) -> str:
        """Upstream's text of its resource."""
        name = self.name + ANY * self.prefix
        return name if self.kind is None else f"{self.kind}:{name}"

    def document(self) -> dict[str, Any]:
        """Return the object for the file."""
        found: dict[str, Any] = {
            "resource": self.resource,
            "actions": [one.value for one in Action if one in self.actions],
            "decision": "Allow" if self.allow else "Deny",
        }
        if self.networks:
            single = ((network, network.num_addresses == 1) for network in self.networks)
            found["sourceIps"] = [str(one.network_address if alone else one) for one, alone in single]
        return found

    def matches(self, need: Need, address: str) -> bool:
        """Whether it applies to an action on a resource from an address."""
        if self.kind is not None and self.kind is not need.kind:
            return False
        if not (need.name.startswith(self.name) if self.prefix else need.name == self.name):
            return False
        if Action.ALL not in self.actions and self.actions.isdisjoint(need.any_of):
            return False
        return not self.networks or any(ip_address(address) in network for network in self.networks)

    @property
    def rank(self) -> tuple[bool, bool, bool, int, bool]:
        """Sort key: the lowest decides."""
        return not self.custom, self.kind is None, self.prefix, -len(self.name), not self.allow


class PolicyRules:
    """Users and their policies."""

    def __init__(self, users: Iterable[User], entries: Mapping[str, Sequence[Entry]]) -> None:
        """Create rules from users, and entries by user name."""
        self.users: Mapping[str, User] = {user.name: user for user in users}
        self.entries: Mapping[str, tuple[Entry, ...]] = {
            name: tuple(found) for name, found in entries.items()
        }
        self._ranked = {name: sorted(found, key=lambda one: one.rank) for name, found in entries.items()}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Create rules from `users` and `acls` of a file, objects in upstream's form.

        Raises:
            ConfigError: A name or word is unknown, a username or password is missing, or an address is
                invalid.
        """
        check_names(document, ("users", "acls"), "")
        users = [parse_user(one, f"users[{at}]") for at, one in enumerate(listed(document.get("users")))]
        entries: dict[str, list[Entry]] = {}
        for at, one in enumerate(listed(document.get("acls"))):
            check_names(one, ("subject", "policies"), f"acls[{at}]")
            found = entries.setdefault(subject_of(one.get("subject"), f"acls[{at}]"), [])
            for policy in listed(one.get("policies")):
                found += entries_of(policy, f"acls[{at}]")
        return cls(users, entries)

    def document(self) -> dict[str, Any]:
        """Return the objects that `parse` reads."""
        return {
            "users": [user_document(one) for one in self.users.values()],
            "acls": [acl_document(name, entries) for name, entries in self.entries.items()],
        }

    def user(self, name: str) -> User | None:
        """Return the user with a name."""
        return self.users.get(name)

    def trusts(self, address: str, name: str | None) -> bool:  # noqa: ARG002 - the form has no white lists
        """No address is trusted without a signature."""
        return False

    def problem(self, user: User, needs: Iterable[Need], address: str) -> str | None:
        """Return why a user may not send a request from an address; None: it may."""
        if user.superuser:
            return None
        entries = self._ranked.get(user.name, [])
        for need in needs:
            first = next((one for one in entries if one.matches(need, address)), None)
            if first is None or not first.allow:
                return f"User:{user.name} has no permission to {need} from {address}"
        return None


def parse_user(document: Mapping[str, Any], place: str) -> User:
    """Create a user from an object in upstream's form.

    Raises:
        ConfigError: username or password is missing, or a name or word is unknown.
    """
    check_names(document, USER_NAMES, place)
    name, secret = str(document.get("username") or ""), str(document.get("password") or "")
    if not name or not secret:
        raise ConfigError(place, "username or password is missing")
    return User(
        name,
        secret,
        word(document.get("userType") or "Normal", USER_TYPES, place, "userType"),
        word(document.get("userStatus") or "enable", USER_STATES, place, "userStatus"),
    )


def user_document(user: User) -> dict[str, Any]:
    """Return the object for the file."""
    return {
        "username": user.name,
        "password": user.secret,
        "userType": "Super" if user.superuser else "Normal",
        "userStatus": "enable" if user.enabled else "disable",
    }


def acl_document(name: str, entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the policies of a user, by type, as an object in upstream's form."""
    by_type: dict[str, list[dict[str, Any]]] = {}
    for one in entries:
        by_type.setdefault("Custom" if one.custom else "Default", []).append(one.document())
    policies = [{"policyType": kind, "entries": found} for kind, found in by_type.items()]
    return {"subject": f"{USER_SUBJECT}{name}", "policies": policies}


def subject_of(text: object, place: str) -> str:
    """Return the user name of a subject.

    Raises:
    ConfigError: It is not a user.
    """
    kind, separator, name = str(text or "").partition(":")
    if kind.lower() != "user" or not separator or not name:
        raise ConfigError(place, f"the subject {str(text)!r} is no user", "write User:name")
    return name


def entries_of(policy: Mapping[str, Any], place: str) -> list[Entry]:
    """Return the entries of a policy, one for each resource.

    Raises:
        ConfigError: A name or word is unknown, or an address is invalid.
    """
    check_names(policy, ("policyType", "entries"), place)
    custom = word(policy.get("policyType") or "Custom", POLICY_TYPES, place, "policyType")
    found = []
    for one in listed(policy.get("entries")):
        check_names(one, ENTRY_NAMES, place)
        found += [
            Entry.parse(one, resource, custom=custom, place=place) for resource in listed(one.get("resource"))
        ]
    return found


def listed(value: Any) -> list[Any]:
    """Return a value as a list: it may be a list, a single value, a text with commas, or missing."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def check_names(document: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Reject unknown names: an entry whose `decision` or `sourceIps` is misspelt would allow more.

    Raises:
        ConfigError: a name is unknown.
    """
    for name in document:
        if name not in known:
            where = f"{place}.{name}" if place else name
            raise ConfigError(where, "unknown name", f"it is one of {', '.join(known)}")


def word(text: object, words: Mapping[str, Any], place: str, what: str) -> Any:
    """Return the meaning of a word, in any case.

    Raises:
    ConfigError: It is unknown.
    """
    found = words.get(str(text).lower())
    if found is None:
        raise ConfigError(place, f"the {what} {text!r} is unknown", f"it is one of {', '.join(words)}")
    return found
