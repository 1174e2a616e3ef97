"""The file that says who may do what: upstream's `plain_acl.yml`, or users and policies in TOML or JSON."""

import asyncio
import json
import logging
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyledger.atomic_file import replace_file
from pyledger.errors import ConfigError
from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import ResponseCode
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.auth.model import AuthRules, Need, Objection, ResourceKind, User
from pyledger.protocol.auth.plain_acl import AccountRules
from pyledger.protocol.auth.policies import PolicyRules
from pyledger.protocol.auth.required_permissions import PUB, need_of
from pyledger.servers.broker.addresses import peer_of
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.signature import ACCESS_KEY, SIGNATURE, sign

log = logger("broker")

SETTING = "acl_path"
USER = "broker.user"
"""Key in the data of a connection: who signed its last request."""
CHANGED_HERE = ".json"
"""Only a file that people do not write is written here: comments and order of another would be lost."""
SIZE_BYTES_MAX = 4 << 20
TOO_LARGE = f"{{}} is larger than {SIZE_BYTES_MAX} bytes"
PARSERS: Mapping[str, Callable[[Mapping[str, Any]], AuthRules]] = {
    ".yml": AccountRules.parse,
    ".yaml": AccountRules.parse,
    ".toml": PolicyRules.parse,
    ".json": PolicyRules.parse,
}
"""By the ending of the file."""


def may_send(rules: AuthRules, connection: Connection, topic: str) -> bool:
    """Whether the user who signed the last request of a connection may send to a topic now."""
    peer, name = peer_of(connection), connection.data.get(USER)
    if peer is None:
        return False
    if rules.trusts(peer[0], name):
        return True
    user = rules.user(name or "")
    needs = (need_of(ResourceKind.TOPIC, topic, PUB),)
    return user is not None and user.enabled and rules.problem(user, needs, peer[0]) is None


class SigningClient(RemotingClient):
    """Signs each request as a user of the file, with the secret that it has by then."""

    def __init__(self, rules: "WatchedRules | None", name: str, **options: Any) -> None:
        """Take the file and the name of a user.

        Raises:
            ConfigError: the file has no such user.
        """
        super().__init__(**options)
        if rules is None or rules.user(name) is None:
            raise ConfigError(
                "acl_user", f"there is no user {name!r}", f"set {SETTING} to a file that has it"
            )
        self._rules, self._name = rules, name

    async def call(self, address: str | None, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """As `RemotingClient.call`; a user that is gone from the file signs nothing."""
        user = self._rules.user(self._name)
        if user is not None:
            command.ext_fields[ACCESS_KEY] = user.name
            command.ext_fields[SIGNATURE] = sign(command.ext_fields, command.body, user.secret)
        return await super().call(address, command, timeout_ms)


class WatchedRules:
    """The rules of a file, as it is now. A file that cannot be understood leaves the old rules in force."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: it cannot be read, or says something that is not understood.
        """
        self._path = path
        self._seen = edition_of(path)
        self._rules = read_rules(path)
        self._changing = asyncio.Lock()

    async def change(self, change: Callable[[PolicyRules], PolicyRules | Objection]) -> Objection | None:
        """Change users and policies, and the file first.

        Args:
            change: What to make of the rules that are in force.

        Returns:
            Why they are as they were; None: they are as asked for.

        Durability: on return without a refusal the change survives a power cut.
        """
        async with self._changing:
            self.refresh()
            rules = self.policies()
            changed = change(rules) if isinstance(rules, PolicyRules) else rules
            if isinstance(changed, Objection) or changed is rules:
                return changed if isinstance(changed, Objection) else None
            content = json.dumps(changed.document(), indent=2, ensure_ascii=False).encode() + b"\n"
            if len(content) > SIZE_BYTES_MAX:
                return Objection(ResponseCode.SYSTEM_ERROR, TOO_LARGE.format(self._path))
            try:
                mode = stat.S_IMODE(self._path.stat().st_mode)
                write = partial(replace_file, self._path, content, backup=False, mode=mode)
                await asyncio.to_thread(write)
            except OSError as error:
                return Objection(
                    ResponseCode.SYSTEM_ERROR, f"{self._path} cannot be written: {error.strerror}"
                )
            self._rules, self._seen = changed, edition_of(self._path)
            return None

    def policies(self) -> PolicyRules | Objection:
        """Users and policies that can be changed here."""
        if isinstance(self._rules, PolicyRules) and self._path.suffix == CHANGED_HERE:
            return self._rules
        return Objection(
            ResponseCode.NO_PERMISSION,
            f"users and policies in a {self._path.suffix} file are changed there; to change them over the "
            f"network let acl_path name a {CHANGED_HERE} file",
        )

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether there are other rules now."""
        found = edition_of(self._path)
        if found == self._seen:
            return False
        self._seen = found
        try:
            self._rules = read_rules(self._path)
        except ConfigError as problem:
            event(log, logging.ERROR, "access rules stay as they were", path=self._path, problem=problem)
            return False
        event(log, logging.INFO, "access rules read again", path=self._path)
        return True

    def user(self, name: str) -> User | None:
        """The user with a name."""
        return self._rules.user(name)

    def trusts(self, address: str, name: str | None) -> bool:
        """Whether requests from an address need no signature, from anybody or from who says to be a user."""
        return self._rules.trusts(address, name)

    def problem(self, user: User, needs: Iterable[Need], address: str) -> str | None:
        """Why a user may not make a request from an address; None: it may."""
        return self._rules.problem(user, needs, address)


def edition_of(path: Path) -> tuple[int, int, int]:
    """What differs when a file was written, or another one took its place; zeros while there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_rules(path: Path) -> AuthRules:
    """Read the file; its ending says which form it has.

    Raises:
        ConfigError: it cannot be read, or says something that is not understood.
    """
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            data = file.read(SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(SETTING, f"{path} cannot be read: {error.strerror}") from None
    if len(data) > SIZE_BYTES_MAX:
        raise ConfigError(SETTING, TOO_LARGE.format(path))
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        event(log, logging.WARNING, "secrets can be read by others", path=path, remedy=f"chmod 600 {path}")
    parse = PARSERS.get(path.suffix)
    if parse is None:
        raise ConfigError(SETTING, f"{path} has an unknown ending", f"it is one of {', '.join(PARSERS)}")
    document = parsed(path, data)
    if not isinstance(document, dict):
        raise ConfigError(SETTING, f"{path} holds no table")
    try:
        return parse(document)
    except (AttributeError, TypeError) as error:
        raise ConfigError(SETTING, f"{path} has another form than expected: {error}") from None


def parsed(path: Path, data: bytes) -> Any:
    """What a file holds.

    Raises:
        ConfigError: it has another form than its ending says, or its reader is not installed.
    """
    if path.suffix in (".yml", ".yaml"):
        try:
            import yaml  # noqa: PLC0415 - only for this form
        except ImportError:
            raise ConfigError(
                SETTING, "reading YAML needs PyYAML", "install pyledger with its extra `server`"
            ) from None
        try:
            return yaml.safe_load(data)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(SETTING, f"{path} is no YAML: {error}") from None
    try:
        text = data.decode()
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(SETTING, f"{path} cannot be read: {error}") from None
