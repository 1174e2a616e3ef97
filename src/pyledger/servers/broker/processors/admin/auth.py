"""Administration of users and policies: 3001 to 3010.

Differs: passwords are sent to super users only.

Source: RocketMQ broker/.../AdminBrokerProcessor.java.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.auth import admin_changes
from pyledger.protocol.auth.model import Objection, User
from pyledger.protocol.auth.policies import PolicyRules
from pyledger.servers.broker.auth.auth_file import WatchedRules
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.wire import fastjson
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import auth as headers
from pyledger.wire.remoting.signature import ACCESS_KEY

NO_RULES = "access control is off; let acl_path name a .json file with a first user to turn it on"
NOBODY = User("", "")
Change = Callable[[PolicyRules], PolicyRules | Objection]


class AuthProcessor:
    """Lists and changes users and policies."""

    def __init__(self, context: BrokerContext) -> None:
        self._rules: WatchedRules | None = context.access_rules

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
        }

    # --- changes

    def create_user(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer AUTH_CREATE_USER (3001)."""
        name = request.header(headers.UserRequestHeader).username or ""
        requester, document = self._requester(request), body_of(request)
        return self._change(
            request, lambda rules: admin_changes.create_user(rules, requester, name, document)
        )

    def update_user(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer AUTH_UPDATE_USER (3002)."""
        name = request.header(headers.UserRequestHeader).username or ""
        requester, document = self._requester(request), body_of(request)
        return self._change(
            request, lambda rules: admin_changes.update_user(rules, requester, name, document)
        )

    def delete_user(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer AUTH_DELETE_USER (3003)."""
        name = request.header(headers.UserRequestHeader).username or ""
        requester = self._requester(request)
        return self._change(request, lambda rules: admin_changes.delete_user(rules, requester, name))

    def put_acl(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """3006 and 3007, which do the same."""
        subject, document = request.header(headers.AclRequestHeader).subject or "", body_of(request)
        return self._change(request, lambda rules: admin_changes.put_acl(rules, subject, document))

    def delete_acl(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer AUTH_DELETE_ACL (3008)."""
        header = request.header(headers.DeleteAclRequestHeader)
        what = header.subject or "", header.policy_type, header.resource
        return self._change(request, lambda rules: admin_changes.delete_acl(rules, *what))

    def _change(self, request: RemotingCommand, change: Change) -> Reply:
        if self._rules is None:
            return request.response(ResponseCode.NO_PERMISSION, NO_RULES)
        return asyncio.ensure_future(self._changed(self._rules, request, change))

    @staticmethod
    async def _changed(rules: WatchedRules, request: RemotingCommand, change: Change) -> RemotingCommand:
        rejection = await rules.change(change)
        return request.response() if rejection is None else response_of(request, rejection)

    # --- queries

    def get_user(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """3004: an empty body for an unknown user."""
        name = request.header(headers.UserRequestHeader).username or ""
        if not name.strip():
            return request.response(ResponseCode.INVALID_PARAMETER, "The username is blank")
        rules = self._policies()
        if isinstance(rules, Objection):
            return response_of(request, rules)
        found = admin_changes.user_documents(rules, self._requester(request), name)
        return answered(request, next((one for one in found if one["username"] == name), None))

    def list_users(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer AUTH_LIST_USER (3005)."""
        rules, part = self._policies(), request.header(headers.ListUsersRequestHeader).filter or ""
        if isinstance(rules, Objection):
            return response_of(request, rules)
        return answered(request, admin_changes.user_documents(rules, self._requester(request), part))

    def get_acl(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """3009: an empty body for an unknown subject."""
        rules = self._policies()
        subject = request.header(headers.AclRequestHeader).subject or ""
        found = rules if isinstance(rules, Objection) else admin_changes.find_acl(rules, subject)
        return response_of(request, found) if isinstance(found, Objection) else answered(request, found)

    def list_acls(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer AUTH_LIST_ACL (3010)."""
        rules, header = self._policies(), request.header(headers.ListAclsRequestHeader)
        if isinstance(rules, Objection):
            return response_of(request, rules)
        parts = header.subject_filter or "", header.resource_filter or ""
        return answered(request, admin_changes.acl_documents(rules, *parts))

    def _policies(self) -> PolicyRules | Objection:
        if self._rules is None:
            return Objection(ResponseCode.NO_PERMISSION, NO_RULES)
        return self._rules.policies()

    def _requester(self, request: RemotingCommand) -> User:
        """Return the user that signed the request; the signature is already checked."""
        found = self._rules.user(request.ext_fields.get(ACCESS_KEY, "")) if self._rules else None
        return found or NOBODY


def body_of(request: RemotingCommand) -> Mapping[str, Any]:
    """Return the JSON object in a body; empty where it has none."""
    found = fastjson.parse(str(request.body, "utf-8", "replace")) if request.body else {}
    return found if isinstance(found, dict) else {}


def answered(request: RemotingCommand, found: object) -> RemotingCommand:
    """Return a response with a document; without a body for an empty one, as upstream."""
    return request.response(body=fastjson.compact(found).encode() if found else b"")


def response_of(request: RemotingCommand, rejection: Objection) -> RemotingCommand:
    """Return the response to a request that is rejected."""
    return request.response(rejection.code, rejection.remark)
