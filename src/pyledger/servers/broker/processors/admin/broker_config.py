"""Settings of the running broker: 25, 26.

Differs: only the settings below can be changed, without regard to upstream's black list, and a change is not
written to a file. Paths are listed only if `admin_enabled` is set.

Source: RocketMQ broker/.../AdminBrokerProcessor.java (updateBrokerConfig, getBrokerConfig).
"""

from collections.abc import Mapping
from functools import partial

from pyledger.config import properties
from pyledger.config.broker import DELAY_LEVELS
from pyledger.config.fields import settings_of
from pyledger.config.ha import ROLES, SINGLE, SLAVE
from pyledger.config.runtime import settings_text
from pyledger.errors import ConfigError
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.wire.remoting.bodies.json_body import encode_body
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.admin import GetBrokerConfigResponseHeader

CHANGEABLE = frozenset(
    {
        "auto_create_groups",
        "auto_create_topics",
        "filter_scan_max",
        "lite_pull",
        "long_polling",
        "permission",
        "property_filter",
        "query_count_max",
        "reject_transactions",
        "short_polling_ms",
        "slave_read",
        "topic_queue_count",
        "trace",
    }
)
"""Settings that may change while the broker runs, by our names."""


ROLE, BROKER_ID = "brokerRole", "brokerId"
ROLE_OF_WORD = {word: role for role, word in ROLES.items() if role != SINGLE}


class SettingsProcessor:
    """Lists and changes settings."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {RequestCode.GET_BROKER_CONFIG: self.get}

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {RequestCode.UPDATE_BROKER_CONFIG: self.update}

    def get(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_BROKER_CONFIG (26)."""
        context = self._context
        others = {
            "messageDelayLevel": DELAY_LEVELS,
            "msgTraceTopicName": names.TRACE_TOPIC,
            "useTLS": context.tls is not None and context.tls.client_enabled,
        }
        text = settings_text(
            (context.config, context.delivery, context.store.config, context.net, context.ha),
            others,
            with_paths=context.config.admin_enabled,
        )
        version = encode_body(context.tables.topics.version.document()).decode()
        return request.response(header=GetBrokerConfigResponseHeader(version=version), body=text.encode())

    def update(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UPDATE_BROKER_CONFIG (25)."""
        try:
            wanted = properties.parse(str(request.body, "utf-8"))
        except (ConfigError, UnicodeDecodeError) as problem:
            return request.response(ResponseCode.SYSTEM_ERROR, str(problem))
        if ROLE in wanted:
            return self._change_role(request, wanted)
        for name in wanted:
            if name not in self._changeable():
                problem_text = f"{name} cannot be changed while the broker runs"
                return request.response(ResponseCode.NO_PERMISSION, problem_text)
        return self._context.stored(partial(self._update, request, wanted))

    def _change_role(self, request: RemotingCommand, wanted: Mapping[str, str]) -> RemotingCommand:
        """Start a change of role; 907 reports when the broker has its new role."""
        change = self._context.change_role()
        role = ROLE_OF_WORD.get(wanted[ROLE])
        number = wanted.get(BROKER_ID, "0")
        if change is None:
            return request.response(ResponseCode.NO_PERMISSION, "this broker cannot change its role")
        fits = number.isascii() and number.isdecimal() and (role == SLAVE) == (int(number) > 0)
        if role is None or not fits or set(wanted) - {ROLE, BROKER_ID}:
            problem = f"{ROLE} is {wanted[ROLE]} and {BROKER_ID} {number}: a slave has an id of 1 or more"
            return request.response(ResponseCode.INVALID_PARAMETER, problem)
        change(role, int(number))
        return request.response()

    def _update(self, request: RemotingCommand, wanted: Mapping[str, str]) -> Reply:
        try:
            self._context.change_settings(wanted)
        except ConfigError as problem:
            return request.response(ResponseCode.INVALID_PARAMETER, str(problem))
        return request.response()

    def _changeable(self) -> set[str]:
        """Return upstream's names of the settings that may change."""
        context = self._context.config, self._context.delivery
        return {
            one.upstream
            for part in context
            for one in settings_of(type(part))
            if one.upstream is not None and one.name in CHANGEABLE
        }
