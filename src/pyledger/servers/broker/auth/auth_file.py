"""The file of access rules: upstream's `plain_acl.yml`, or users and policies in TOML or JSON."""

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
from pyledger.errors import ConfigError, MissingExtraError
from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import ResponseCode
from pyledger.protocol.auth.model import AuthRules, Need, Objection, User
from pyledger.protocol.auth.plain_acl import AccountRules
from pyledger.protocol.auth.policies import PolicyRules

log = logger("broker")

SETTING = "acl_path"
CHANGED_HERE = ".json"
"""Ending of the files that the broker writes: others would lose their comments and their order."""
SIZE_BYTES_MAX = 4 << 20
TOO_LARGE = f"{{}} is larger than {SIZE_BYTES_MAX} bytes"
PARSERS: Mapping[str, Callable[[Mapping[str, Any]], AuthRules]] = {
    ".yml": AccountRules.parse,
    ".yaml": AccountRules.parse,
    ".toml": PolicyRules.parse,
    ".json": PolicyRules.parse,
}
"""Parsers by the ending of the file."""


class WatchedRules:
    """The current rules of a file. If a changed file cannot be parsed, the previous rules stay in force."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: it cannot be read or parsed.
        """
        self._path = path
        self._seen = edition_of(path)
        self._rules = read_rules(path)
        self._changing = asyncio.Lock()

    async def change(self, change: Callable[[PolicyRules], PolicyRules | Objection]) -> Objection | None:
        """Change users and policies: first in the file, then in memory.

        Args:
            change: Returns the new rules, given those in force.

        Returns:
            Why nothing was changed; None: the change is made.

        Durability: a change that is made survives a power failure.
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
        """Return the rules if they can be changed over the network."""
        if isinstance(self._rules, PolicyRules) and self._path.suffix == CHANGED_HERE:
            return self._rules
        return Objection(
            ResponseCode.NO_PERMISSION,
            f"users and policies in a {self._path.suffix} file are changed there; to change them over the "
            f"network let acl_path name a {CHANGED_HERE} file",
        )

    def refresh(self) -> bool:
        """Reread the file if it has changed; return whether other rules are in force."""
        found = edition_of(self._path)
        if found == self._seen:
            return False
        self._seen = found
        try:
            self._rules = read_rules(self._path)
        except ConfigError as problem:
            event(log, logging.ERROR, "access rules not reread", path=self._path, problem=problem)
            return False
        event(log, logging.INFO, "access rules reread", path=self._path)
        return True

    def user(self, name: str) -> User | None:
        """Return the user with a name."""
        return self._rules.user(name)

    def trusts(self, address: str, name: str | None) -> bool:
        """Return whether requests from an address need no signature: all, or those that name this user."""
        return self._rules.trusts(address, name)

    def problem(self, user: User, needs: Iterable[Need], address: str) -> str | None:
        """Return why a user may not send a request from an address; None: it may."""
        return self._rules.problem(user, needs, address)


def edition_of(path: Path) -> tuple[int, int, int]:
    """Return values that differ when a file was written or replaced; zeros while it is missing."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_rules(path: Path) -> AuthRules:
    """Read the file; its ending names the format.

    Raises:
        ConfigError: it cannot be read or parsed.
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
        raise ConfigError(SETTING, f"{path} has no table")
    try:
        return parse(document)
    except (AttributeError, TypeError) as error:
        raise ConfigError(SETTING, f"{path} has another form than expected: {error}") from None


def parsed(path: Path, data: bytes) -> Any:
    """Parse the content of a file.

    Raises:
        ConfigError: it does not have the format of its ending.
        MissingExtraError: the parser is not installed.
    """
    if path.suffix in (".yml", ".yaml"):
        try:
            import yaml  # noqa: PLC0415 - only for this form
        except ImportError as error:
            raise MissingExtraError(f"reading {path}", "PyYAML", "server") from error
        try:
            return yaml.safe_load(data)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(SETTING, f"{path} is not YAML: {error}") from None
    try:
        text = data.decode()
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(SETTING, f"{path} cannot be read: {error}") from None
