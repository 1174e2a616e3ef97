"""Accounts as upstream had them until 5.2, in `plain_acl.yml`: permissions by topic and group.

An account that is not an admin has the given permissions on the listed topics and groups, and its default
permissions on all others. A query that returns neither messages nor offsets of a group needs an account but
no permission; changes need an admin.

Differs: an admin may do everything, even with topics for which its account lists a permission.

Source: RocketMQ acl/.../plain/PlainPermissionManager.java, PlainAccessConfig.java,
RemoteAddressStrategyFactory.java; acl/.../common/Permission.java.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Self

from pyledger.errors import ConfigError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.protocol.auth.model import Action, Need, ResourceKind, User
from pyledger.protocol.auth.policies import listed

KEY_LENGTH_MIN = 7
PERMISSIONS = {
    "DENY": frozenset[Action](),
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
    "ANY": frozenset({Action.PUB, Action.SUB}),
}
DENY = PERMISSIONS["DENY"]
QUESTIONS = frozenset({Action.GET, Action.LIST})
SPAN = re.compile(r"(\d+)-(\d+)")
Matcher = Callable[[str], bool]


@lazy_dataclass()
class Account:
    """One account of the file."""

    user: User
    trusted: tuple[Matcher, ...]
    """Addresses from which it sends unsigned requests."""
    topics: Mapping[str, frozenset[Action]] = field(default_factory=dict)
    groups: Mapping[str, frozenset[Action]] = field(default_factory=dict)
    other_topics: frozenset[Action] = DENY
    other_groups: frozenset[Action] = DENY

    def actions(self, kind: ResourceKind, name: str) -> frozenset[Action]:
        """Return its permission on a topic or a group."""
        if kind is ResourceKind.TOPIC:
            return self.topics.get(name, self.other_topics)
        if kind is ResourceKind.GROUP:
            return self.groups.get(name, self.other_groups)
        return DENY


class AccountRules:
    """The accounts of a file, and the addresses that it trusts."""

    def __init__(self, accounts: Iterable[Account], trusted: Iterable[Matcher] = ()) -> None:
        self._accounts = {account.user.name: account for account in accounts}
        self._trusted = tuple(trusted)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Create it from the object in the file.

        Raises:
        ConfigError: A key is too short or missing, or a permission or an address is invalid.
        """
        trusted = matchers(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
        accounts = [
            parse_account(one, f"accounts[{at}]") for at, one in enumerate(listed(document.get("accounts")))
        ]
        return cls(accounts, trusted)

    def user(self, name: str) -> User | None:
        """Return the user with an access key."""
        account = self._accounts.get(name)
        return None if account is None else account.user

    def trusts(self, address: str, name: str | None) -> bool:
        """Whether requests from an address need no signature, unsigned or under a user's name."""
        if any(matches(address) for matches in self._trusted):
            return True
        account = self._accounts.get(name or "")
        return account is not None and any(matches(address) for matches in account.trusted)

    def problem(self, user: User, needs: Iterable[Need], address: str) -> str | None:
        """Return why a user may not send a request from an address; None: it may."""
        if user.superuser:
            return None
        account = self._accounts[user.name]
        for need in needs:
            actions = account.actions(need.kind, need.name)
            if actions.isdisjoint(need.any_of) and not QUESTIONS.issuperset(need.any_of):
                return f"{user.name} has no permission to {need} from {address}"
        return None


def parse_account(one: Mapping[str, Any], place: str) -> Account:
    """Parse one object of `accounts`."""
    name, secret = str(one.get("accessKey") or ""), str(one.get("secretKey") or "")
    if len(name) < KEY_LENGTH_MIN or len(secret) < KEY_LENGTH_MIN:
        raise ConfigError(
            place,
            "accessKey or secretKey is missing or too short",
            f"each has at least {KEY_LENGTH_MIN} characters",
        )
    return Account(
        User(name, secret, superuser=one.get("admin") is True),
        matchers(one.get("whiteRemoteAddress"), place),
        permissions(one.get("topicPerms"), place),
        permissions(one.get("groupPerms"), place),
        permission(one.get("defaultTopicPerm") or "DENY", place),
        permission(one.get("defaultGroupPerm") or "DENY", place),
    )


def permissions(items: Any, place: str) -> dict[str, frozenset[Action]]:
    """Parse `name=PUB|SUB` of a list."""
    found = {}
    for item in listed(items):
        name, separator, text = str(item).partition("=")
        if not separator or not name.strip():
            raise ConfigError(place, f"the permission {item!r} cannot be read", "write name=PUB|SUB")
        found[name.strip()] = permission(text, place)
    return found


def permission(text: Any, place: str) -> frozenset[Action]:
    """Parse a permission."""
    found = PERMISSIONS.get("".join(str(text).split()))
    if found is None:
        raise ConfigError(place, f"the permission {text!r} is unknown", "DENY, PUB, SUB or PUB|SUB")
    return found


def matchers(patterns: Any, place: str) -> tuple[Matcher, ...]:
    """Parse matchers of addresses: a list, or a text with commas."""
    if isinstance(patterns, str):
        # A comma between braces is part of the pattern.
        patterns = [part.strip() for part in re.split(r",(?![^{]*})", patterns)]
    return tuple(matcher(str(one), place) for one in listed_patterns(patterns))


def listed_patterns(patterns: Any) -> list[Any]:
    """Return a list of patterns; empty if it is missing."""
    return [one for one in patterns or () if str(one).strip()]


def matcher(pattern: str, place: str) -> Matcher:
    """Parse a matcher: `*`, an address, or four parts, each a number, `*`, `1-5` or `{1,2}`."""
    if pattern in ("*", "*.*.*.*"):
        return lambda _address: True
    parts = re.split(r"\.(?![^{]*})", pattern)
    if len(parts) != 4:
        if ":" not in pattern:
            raise ConfigError(place, f"the address {pattern!r} cannot be read", "write it as 10.0.1-5.*")
        return lambda address: address == pattern
    allowed = [numbers(part, place) for part in parts]

    def matches(address: str) -> bool:
        found = address.split(".")
        return len(found) == 4 and all(
            part.isdecimal() and int(part) in span for part, span in zip(found, allowed, strict=True)
        )

    return matches


def numbers(part: str, place: str) -> range | frozenset[int]:
    """Parse a part of an address: the numbers that it matches."""
    if part == "*":
        return range(256)
    if span := SPAN.fullmatch(part):
        return range(int(span[1]), int(span[2]) + 1)
    listing = part.removeprefix("{").removesuffix("}").split(",")
    if not all(one.strip().isdecimal() for one in listing):
        raise ConfigError(place, f"{part!r} is no part of an address", "write a number, *, 1-5 or {1,2}")
    return frozenset(int(one) for one in listing)
