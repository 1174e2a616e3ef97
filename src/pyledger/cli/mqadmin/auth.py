"""Users and policies with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/auth/*.java.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from pyledger.cli.mqadmin.verb import BROKER, CLUSTER, Printer, chosen_brokers, verb
from pyledger.cli.output import WrongUseError
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire import fastjson
from pyledger.wire.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from pyledger.wire.remoting.headers.codec import Header

VERBS: dict[str, click.Command] = {}
Document = Mapping[str, Any]

USER = click.option("-u", "--username", required=True, help="Name of the user.")
SUBJECT = click.option("-s", "--subject", required=True, help="Subject: User:name.")
RULE_OPTIONS = (
    SUBJECT,
    click.option(
        "-r", "--resources", required=True, help="Comma-separated Topic:name, Group:name, Cluster:name."
    ),
    click.option("-a", "--actions", required=True, help="Comma-separated Pub, Sub, Create, …, or All."),
    click.option(
        "-i", "--sourceIp", "sources", help="Addresses or networks, comma-separated. [default: any]"
    ),
    click.option("-d", "--decision", required=True, help="Allow or Deny."),
)
FROM = click.option("-f", "--fromBroker", "source", required=True, metavar="HOST:PORT", help="Source broker.")
TO = click.option("-t", "--toBroker", "target", required=True, metavar="HOST:PORT", help="Target broker.")
USERS = "{username:<16}  {password:<22}  {userType:<22}  {userStatus:<22}"
USER_HEADS = ("#UserName", "#Password", "#UserType", "#UserStatus")
ACLS = "{subject:<16}  {policyType:<10}  {resource:<22}  {actions:<20}  {sourceIps:<24}  {decision:<10}"
ACL_HEADS = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")


async def every_broker(admin: Any, broker: str | None, cluster: str | None) -> tuple[str, ...]:
    """Return one broker, or the masters and slaves of a cluster: each has its own file."""
    if broker or not cluster:
        return await chosen_brokers(admin, broker, cluster)
    known = await admin.clusters()
    if cluster.strip() not in known.clusters:
        raise WrongUseError(f"no cluster {cluster!r}; known: {', '.join(sorted(known.clusters)) or 'none'}")
    addresses = (known.brokers[name].broker_addrs.values() for name in known.clusters[cluster.strip()])
    return tuple(sorted(address for of_broker in addresses for address in of_broker))


async def change_all(
    admin: Any,
    out: Printer,
    place: tuple[str | None, str | None],
    done: str,
    code: RequestCode,
    header: Header,
    document: Document | None = None,
) -> None:
    """Send a change to brokers and report each success."""
    body = b"" if document is None else fastjson.compact(given(document)).encode()
    for address in await every_broker(admin, *place):
        await admin.request(address, code, header, body)
        out.done(f"{done} to {address} success.", broker=address)


def given(document: Document) -> dict[str, Any]:
    """Return an object without the options that were not given."""
    return {name: value for name, value in document.items() if value is not None}


async def found(admin: Any, address: str, code: RequestCode, header: Header) -> list[dict[str, Any]]:
    """Return the objects of a response: none, one or several."""
    answer = await admin.request(address, code, header)
    value = fastjson.parse(str(answer.body, "utf-8", "replace")) if len(answer.body) else []
    return value if isinstance(value, list) else [value]


def parts(text: str | None) -> list[str] | None:
    """Split at commas."""
    return None if text is None else [one.strip() for one in text.split(",") if one.strip()]


# --- users


@verb(
    "createUser",
    BROKER,
    CLUSTER,
    USER,
    click.option("-p", "--password", required=True, help="Password that signs the user's requests."),
    click.option("-t", "--userType", "kind", help="Super or Normal. [default: Normal]"),
    table=VERBS,
)
async def create_user(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    username: str,
    password: str,
    kind: str | None,
) -> None:
    """Create a user."""
    document = {"username": username, "password": password, "userType": kind}
    code, header = RequestCode.AUTH_CREATE_USER, UserRequestHeader(username=username)
    await change_all(admin, out, (broker, cluster), "create user", code, header, document)


@verb(
    "updateUser",
    BROKER,
    CLUSTER,
    USER,
    click.option("-p", "--password", help="Password that signs the user's requests."),
    click.option("-t", "--userType", "kind", help="Super or Normal."),
    click.option("-s", "--userStatus", "status", help="enable or disable."),
    table=VERBS,
)
async def update_user(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    username: str,
    password: str | None,
    kind: str | None,
    status: str | None,
) -> None:
    """Change password, type or status of a user."""
    if password is None and kind is None and status is None:
        raise WrongUseError("no change given; use -p PASSWORD, -t TYPE or -s STATUS")
    document = {"username": username, "password": password, "userType": kind, "userStatus": status}
    code, header = RequestCode.AUTH_UPDATE_USER, UserRequestHeader(username=username)
    await change_all(admin, out, (broker, cluster), "update user", code, header, document)


@verb("deleteUser", BROKER, CLUSTER, USER, table=VERBS)
async def delete_user(
    admin: Any, out: Printer, broker: str | None, cluster: str | None, username: str
) -> None:
    """Delete a user and the policies about it."""
    code, header = RequestCode.AUTH_DELETE_USER, UserRequestHeader(username=username)
    await change_all(admin, out, (broker, cluster), "delete user", code, header)


@verb("getUser", BROKER, CLUSTER, USER, table=VERBS)
async def get_user(admin: Any, out: Printer, broker: str | None, cluster: str | None, username: str) -> None:
    """Show a user; super users see the password, too."""
    header = UserRequestHeader(username=username)
    await print_users(admin, out, broker, cluster, RequestCode.AUTH_GET_USER, header)


@verb(
    "listUser",
    BROKER,
    CLUSTER,
    click.option("-f", "--filter", "part", help="Only names that contain this text."),
    table=VERBS,
)
async def list_users(
    admin: Any, out: Printer, broker: str | None, cluster: str | None, part: str | None
) -> None:
    """List all users."""
    header = ListUsersRequestHeader(filter=part)
    await print_users(admin, out, broker, cluster, RequestCode.AUTH_LIST_USER, header)


async def print_users(
    admin: Any, out: Printer, broker: str | None, cluster: str | None, code: RequestCode, header: Header
) -> None:
    """Return the users of the first broker that has any."""
    for address in await chosen_brokers(admin, broker, cluster):
        users = await found(admin, address, code, header)
        if users:
            names = ("username", "password", "userType", "userStatus")
            rows = [{name: one.get(name) for name in names} for one in users]
            out.table(USERS, USER_HEADS, rows)
            return


@verb(
    "copyUser",
    FROM,
    TO,
    click.option("-u", "--usernames", help="Only these, separated by commas."),
    table=VERBS,
)
async def copy_users(admin: Any, out: Printer, source: str, target: str, usernames: str | None) -> None:
    """Copy users with their passwords from one broker to another. Sign as a super user."""
    users = await found(admin, source, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader())
    codes = (RequestCode.AUTH_GET_USER, RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER)
    for user in chosen(users, "username", usernames):
        name = user["username"]
        await put_one(admin, target, codes, UserRequestHeader(username=name), user)
        out.done(f"copy user of {name} from {source} to {target} success.", user=name, broker=target)


def chosen(documents: Iterable[Document], key: str, given_names: str | None) -> Iterator[Document]:
    """Return the users with the given names, or all if no name was given."""
    wanted = parts(given_names)
    return (one for one in documents if wanted is None or one[key] in wanted)


async def put_one(
    admin: Any,
    target: str,
    codes: tuple[RequestCode, RequestCode, RequestCode],
    header: Header,
    document: Document,
) -> None:
    """Create or update an object at a broker; `codes` are the request codes get, create and update."""
    get, create, update = codes
    there = await found(admin, target, get, header)
    await admin.request(target, update if there else create, header, fastjson.compact(document).encode())


# --- policies


def rule_of(subject: str, resources: str, actions: str, sources: str | None, decision: str) -> Document:
    """Return a policy of type Custom with one entry per resource."""
    rights = {"actions": parts(actions), "sourceIps": parts(sources), "decision": decision.strip()}
    entries = [given({"resource": one, **rights}) for one in parts(resources) or ()]
    return {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}


def granting(name: str, code: RequestCode, said: str, what: str) -> None:
    """Make a command that adds entries; brokers treat create and update alike."""

    async def grant(
        admin: Any,
        out: Printer,
        broker: str | None,
        cluster: str | None,
        subject: str,
        resources: str,
        actions: str,
        sources: str | None,
        decision: str,
    ) -> None:
        subject = subject.strip()
        document = rule_of(subject, resources, actions, sources, decision)
        await change_all(
            admin, out, (broker, cluster), said, code, AclRequestHeader(subject=subject), document
        )

    grant.__doc__ = what
    verb(name, BROKER, CLUSTER, *RULE_OPTIONS, table=VERBS)(grant)


granting("createAcl", RequestCode.AUTH_CREATE_ACL, "create acl", "Set the permissions of a user.")
granting("updateAcl", RequestCode.AUTH_UPDATE_ACL, "update acl", "Change the permissions of a user.")


@verb(
    "deleteAcl",
    BROKER,
    CLUSTER,
    SUBJECT,
    click.option("-r", "--resources", "resource", help="Only this resource."),
    table=VERBS,
)
async def delete_acl(
    admin: Any, out: Printer, broker: str | None, cluster: str | None, subject: str, resource: str | None
) -> None:
    """Delete the permissions of a user."""
    header = DeleteAclRequestHeader(subject=subject, resource=resource)
    await change_all(admin, out, (broker, cluster), "delete acl", RequestCode.AUTH_DELETE_ACL, header)


@verb("getAcl", BROKER, CLUSTER, SUBJECT, table=VERBS)
async def get_acl(admin: Any, out: Printer, broker: str | None, cluster: str | None, subject: str) -> None:
    """Show the permissions of a user."""
    header = AclRequestHeader(subject=subject)
    for address in await chosen_brokers(admin, broker, cluster):
        print_acls(out, await found(admin, address, RequestCode.AUTH_GET_ACL, header))


@verb(
    "listAcl",
    BROKER,
    CLUSTER,
    click.option("-s", "--subject", "subject_part", help="Only subjects that contain this text."),
    click.option("-r", "--resource", "resource_part", help="Only resources that contain this text."),
    table=VERBS,
)
async def list_acls(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    subject_part: str | None,
    resource_part: str | None,
) -> None:
    """List the permissions of all users."""
    header = ListAclsRequestHeader(subject_filter=subject_part, resource_filter=resource_part)
    for address in await chosen_brokers(admin, broker, cluster):
        print_acls(out, await found(admin, address, RequestCode.AUTH_LIST_ACL, header))


def print_acls(out: Printer, acls: Iterable[Document]) -> None:
    """Return one row per entry."""
    rows = [
        {
            "subject": acl.get("subject"),
            "policyType": policy.get("policyType"),
            **{name: entry.get(name) for name in ("resource", "actions", "sourceIps", "decision")},
        }
        for acl in acls
        for policy in acl.get("policies") or ()
        for entry in policy.get("entries") or ()
    ]
    if rows:
        out.table(ACLS, ACL_HEADS, rows, actions=listing, sourceIps=listing)


def listing(value: list[str] | None) -> str:
    """Format a list as Java prints it."""
    return "null" if value is None else f"[{', '.join(value)}]"


@verb(
    "copyAcl",
    FROM,
    TO,
    click.option("-s", "--subjects", help="Only these subjects, separated by commas."),
    table=VERBS,
)
async def copy_acls(admin: Any, out: Printer, source: str, target: str, subjects: str | None) -> None:
    """Copy permissions from one broker to another."""
    acls = await found(admin, source, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader())
    codes = (RequestCode.AUTH_GET_ACL, RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL)
    for acl in chosen(acls, "subject", subjects):
        subject = acl["subject"]
        await put_one(admin, target, codes, AclRequestHeader(subject=subject), acl)
        out.done(f"copy acl of {subject} from {source} to {target} success.", subject=subject, broker=target)
