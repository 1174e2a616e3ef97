"""The connections of a broker to other brokers and name servers, where these check signatures."""

from collections.abc import Callable

from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ConfigError
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.auth.auth_file import SETTING, WatchedRules
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.signature import ACCESS_KEY, SIGNATURE, sign


class SigningClient(RemotingClient):
    """Signs each request as a user of the file, with the user's current secret."""

    def __init__(
        self,
        rules: WatchedRules | None,
        name: str,
        *,
        config: NetConfig,
        tls: TlsConfig | None,
        on_close: Callable[[Connection], None],
    ) -> None:
        """Take the file and the name of a user; the rest as `RemotingClient`.

        Raises:
            ConfigError: the file has no such user.
        """
        super().__init__(config=config, tls=tls, on_close=on_close)
        if rules is None or rules.user(name) is None:
            raise ConfigError(
                "acl_user", f"there is no user {name!r}", f"set {SETTING} to a file that has it"
            )
        self._rules, self._name = rules, name

    async def call(self, address: str | None, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """As `RemotingClient.call`; unsigned when the user was removed from the file."""
        user = self._rules.user(self._name)
        if user is not None:
            command.ext_fields[ACCESS_KEY] = user.name
            command.ext_fields[SIGNATURE] = sign(command.ext_fields, command.body, user.secret)
        return await super().call(address, command, timeout_ms)
