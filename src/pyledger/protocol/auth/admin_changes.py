"""Changes of users and policies by an operator's requests: the new rules, or an objection.

Remarks of objections are upstream's. An entry for a resource replaces the earlier entry for it.

Differs: an unknown action is rejected; upstream ignores it.

Source: RocketMQ auth/.../authentication/manager/AuthenticationMetadataManagerImpl.java,
authorization/manager/AuthorizationMetadataManagerImpl.java, authorization/model/Acl.java;
broker/.../AdminBrokerProcessor.java.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyledger.errors import ConfigError
from pyledger.model.remoting_codes import ResponseCode
from pyledger.protocol.auth.model import Objection, User
from pyledger.protocol.auth.policies import (
    POLICY_TYPES,
    USER_STATES,
    USER_SUBJECT,
    USER_TYPES,
    Entry,
    PolicyRules,
    acl_document,
    entries_of,
    listed,
    subject_of,
    user_document,
    word,
)

UNKNOWN_USER = "The user is not exist"
UNKNOWN_SUBJECT = "The subject is not exist."
SUPER_ONLY = "The super user can only be update by super user"


def denied(problem: str) -> Objection:
    """Return the objection to a change that is not allowed."""
    return Objection(ResponseCode.NO_PERMISSION, problem)


def create_user(
    rules: PolicyRules, requester: User, name: str, document: Mapping[str, Any]
) -> PolicyRules | Objection:
    """Add a user, described as in the file."""
    if not name.strip():
        return Objection(ResponseCode.INVALID_PARAMETER, "The username is blank")
    if not str(document.get("password") or "").strip():
        return denied("password can not be blank")
    user = changed_user(User(name, ""), document)
    if isinstance(user, Objection):
        return user
    if user.superuser and not requester.superuser:
        return Objection(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
    if name in rules.users:
        return denied("The user is existed")
    return PolicyRules([*rules.users.values(), user], rules.entries)


def update_user(
    rules: PolicyRules, requester: User, name: str, document: Mapping[str, Any]
) -> PolicyRules | Objection:
    """Change the given fields of a user."""
    if not name.strip():
        return Objection(ResponseCode.INVALID_PARAMETER, "The username is blank")
    old = rules.users.get(name)
    if old is None:
        return denied(UNKNOWN_USER)
    user = changed_user(old, document)
    if isinstance(user, Objection):
        return user
    if (user.superuser or old.superuser) and not requester.superuser:
        return denied(SUPER_ONLY)
    return PolicyRules({**rules.users, name: user}.values(), rules.entries)


def changed_user(user: User, document: Mapping[str, Any]) -> User | Objection:
    """Return a user with the given fields changed; blank ones keep their value."""
    secret, kind, status = (document.get(one) or "" for one in ("password", "userType", "userStatus"))
    try:
        return replace(
            user,
            secret=str(secret) if str(secret).strip() else user.secret,
            superuser=word(kind, USER_TYPES, user.name, "userType") if kind else user.superuser,
            enabled=word(status, USER_STATES, user.name, "userStatus") if status else user.enabled,
        )
    except ConfigError as problem:
        return denied(str(problem))


def delete_user(rules: PolicyRules, requester: User, name: str) -> PolicyRules | Objection:
    """Delete a user and its policies; no error if it does not exist."""
    if not name.strip():
        return denied("username can not be blank")
    old = rules.users.get(name)
    if old is None:
        return rules
    if old.superuser and not requester.superuser:
        return denied(SUPER_ONLY)
    return PolicyRules(without(rules.users, name).values(), without(rules.entries, name))


def put_acl(rules: PolicyRules, subject: str, document: Mapping[str, Any]) -> PolicyRules | Objection:
    """Add entries to the policies of a user; those of the same type and resource are replaced."""
    try:
        name = subject_of(document.get("subject") or subject, "subject")
        fresh = [one for policy in listed(document.get("policies")) for one in entries_of(policy, name)]
    except (ConfigError, AttributeError, TypeError) as problem:
        return denied(str(problem))
    if not fresh:
        return denied("The policies is empty.")
    if any(not one.actions for one in fresh):
        return denied("The actions is empty.")
    if name not in rules.users:
        return denied(f"The subject of User:{name} is not exist.")
    entries = {(one.custom, one.resource): one for one in (*rules.entries.get(name, ()), *fresh)}
    return PolicyRules(rules.users.values(), {**rules.entries, name: tuple(entries.values())})


def delete_acl(
    rules: PolicyRules, subject: str, policy_type: str | None, resource: str | None
) -> PolicyRules | Objection:
    """Delete the entries for a resource from a user's policies; without a resource, all entries."""
    try:
        name = subject_of(subject, "subject")
        custom = word(policy_type or "Custom", POLICY_TYPES, "policyType", "policyType")
        gone = Entry.parse({}, resource, custom=custom, place="resource").resource if resource else None
    except ConfigError as problem:
        return denied(str(problem))
    if name not in rules.users:
        return denied(UNKNOWN_SUBJECT)
    if name not in rules.entries:
        return denied("The acl is not exist.")
    left = [one for one in rules.entries[name] if one.custom is not custom or one.resource != gone]
    if gone is None or not left:
        return PolicyRules(rules.users.values(), without(rules.entries, name))
    return PolicyRules(rules.users.values(), {**rules.entries, name: left})


def user_documents(rules: PolicyRules, requester: User, part: str = "") -> list[dict[str, Any]]:
    """Return the users whose name contains a text; only super users get their secrets."""
    found = [user_document(one) for name, one in rules.users.items() if part in name]
    return found if requester.superuser else [without(one, "password") for one in found]


def acl_documents(
    rules: PolicyRules, subject_part: str = "", resource_part: str = ""
) -> list[dict[str, Any]]:
    """Return the policies of users whose subject contains a text, for resources that contain another."""
    found = (
        acl_document(name, [one for one in entries if resource_part in one.resource])
        for name, entries in rules.entries.items()
        if subject_part in f"{USER_SUBJECT}{name}"
    )
    return [one for one in found if one["policies"]]


def find_acl(rules: PolicyRules, subject: str) -> dict[str, Any] | Objection | None:
    """Return the policies of a user; None: it has none."""
    try:
        name = subject_of(subject, "subject")
    except ConfigError as problem:
        return denied(str(problem))
    if name not in rules.users:
        return denied(UNKNOWN_SUBJECT)
    return acl_document(name, rules.entries[name]) if rules.entries.get(name) else None


def without(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table without one of its rows."""
    return {key: value for key, value in table.items() if key != name}
