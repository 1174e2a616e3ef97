"""Settings from a file and the environment. The only module that reads an environment variable.

Options override the environment, which overrides the file, which overrides the defaults. A variable is named
`PYLEDGER_<SECTION>_<FIELD>`, such as `PYLEDGER_STORE_RETENTION_HOURS`. A file is TOML, one table for each
section, or upstream's `.properties`, in which all sections share one list of keys.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pyledger.config import properties
from pyledger.config.fields import Fixed, Settings, build, settings_of, suggestion
from pyledger.errors import ConfigError

S = TypeVar("S", bound=Settings)

SECTIONS = (
    "store", "net", "tls", "delivery", "namesrv", "client", "producer", "consumer", "broker", "dledger", "ha",
    "dledger_store", "dledger_broker", "bookie", "autorecovery", "bookkeeper",
)  # fmt: skip
"""All sections: a file may configure several servers, and each reads its own sections."""

_PREFIX = "PYLEDGER_"
_FILE_BYTES_MAX = 1 << 20
_TYPO_CUTOFF = 0.9
"""Similarity at which an unknown key is taken for a misspelt known one. No ignored key of upstream's comes
close, see tests/config/test_upstream_files.py."""


def load(
    kind: type[S],
    section: str,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> S:
    """Load the settings of one section from the environment.

    Args:
        kind: The settings class.
        section: Part of the variables' names, such as `store`.
        environment: None: the environment of the process.
        options: Values by field name, which win over the environment; None: not given.

    Raises:
        ConfigError: A variable is unknown, or a value is invalid.
    """
    return merged(kind, section, {}, environment, options)


def merged(
    kind: type[S],
    section: str,
    from_file: Mapping[str, object],
    environment: Mapping[str, str] | None,
    options: Mapping[str, object] | None = None,
) -> S:
    """Merge the settings of one section from a file, the environment and options, then check them."""
    given = read_environment(kind, section, os.environ if environment is None else environment)
    given |= {name: value for name, value in (options or {}).items() if value is not None}
    taken = {name for one in settings_of(kind) if one.name in given for name in one.names}
    kept = {name: value for name, value in from_file.items() if name not in taken}
    return build(kind, {**kept, **given})


def name_server_list(given: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Return the name servers: those given, else those of `NAMESRV_ADDR`, else one on this machine.

    Args:
        given: `host:port;host:port`.
        environment: None: the environment of the process.
    """
    known = os.environ if environment is None else environment
    return given or known.get("NAMESRV_ADDR", "") or "127.0.0.1:9876"


def read_toml(path: Path) -> dict[str, dict[str, object]]:
    """Read the tables of a TOML file, by section.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or contains an unknown section: a server must
            not start without access control because the table for it is misspelt.
    """
    try:
        document = tomllib.loads(_read(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error
    for name, table in document.items():
        if name in SECTIONS:
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: {name}", "is not a table", f"write [{name}]")
        elif isinstance(table, dict | list):
            raise ConfigError(f"{path}: [{name}]", "unknown section", suggestion(name.lower(), SECTIONS))
        else:
            raise ConfigError(f"{path}: {name}", "is in no section", "write it below its [section]")
    return document


def _read(path: Path) -> bytes:
    """Read a settings file, up to a limit: a device might not end."""
    try:
        with path.open("rb") as file:
            found = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    if len(found) > _FILE_BYTES_MAX:
        raise ConfigError(str(path), "is larger than 1 MiB", "name a file of settings")
    return found


def read_environment(kind: type[Settings], section: str, environment: Mapping[str, str]) -> dict[str, object]:
    """Return the variables of one section, by field name."""
    names = {f"{_PREFIX}{section}_{one.name}".upper(): one.name for one in settings_of(kind)}
    found: dict[str, object] = {}
    for variable, value in environment.items():
        if variable in names:
            found[names[variable]] = value
        elif (folded := variable.upper()).startswith(_PREFIX) and (
            _is_meant(folded, names) if (owner := _section_of(folded)) is None else owner == section
        ):
            raise ConfigError(variable, "unknown setting", suggestion(folded, names))
    return found


def _section_of(variable: str) -> str | None:
    """Return the section that a variable names; None: no section, as with `PYLEDGER_METADATA`."""
    named = [one for one in SECTIONS if variable.startswith(f"{_PREFIX}{one.upper()}_")]
    return max(named, key=len, default=None)


def _is_meant(variable: str, names: Mapping[str, str]) -> bool:
    """Whether a variable without a section is a setting whose section is missing or misspelt."""
    given = variable.removeprefix(_PREFIX)
    if "_" in given and given.lower() in names.values():
        return True
    return _is_near(given, [name.removeprefix(_PREFIX) for name in names])


def _is_near(name: str, known: Sequence[str]) -> bool:
    import difflib  # noqa: PLC0415 - only for unknown names

    return bool(difflib.get_close_matches(name, known, n=1, cutoff=_TYPO_CUTOFF))


class ConfigFile:
    """A file that configures several parts, each by its section."""

    def __init__(self, path: Path | None, environment: Mapping[str, str] | None = None) -> None:
        """Read a file.

        Args:
            path: TOML if its name ends in `.toml`, otherwise properties; None: only the environment.
            environment: None: the environment of the process.

        Raises:
            ConfigError: The file cannot be read, or has an unknown table.
        """
        self.path = path
        self._environment = environment
        is_toml = path is not None and path.suffix.lower() == ".toml"
        self._tables = read_toml(path) if path is not None and is_toml else None
        self._pairs = {} if path is None or is_toml else read_properties(path)
        self._loaded: set[str] = set()
        self._known: dict[str, None] = {}

    def load(self, kind: type[S], section: str, options: Mapping[str, object] | None = None) -> S:
        """Load the settings of one section.

        Args:
            kind: The settings class.
            section: Table of a TOML file, and part of the variables' names.
            options: Values by field name, which win over file and environment; None: not given.

        Raises:
            ConfigError: A key of a TOML table or a variable is unknown, or a value is invalid.
        """
        self._loaded.add(section)
        if self._tables is not None:
            return merged(kind, section, self._tables.get(section, {}), self._environment, options)
        names = [name for one in settings_of(kind) for name in one.names]
        self._known |= dict.fromkeys(names)
        pairs = {key: value for key, value in self._pairs.items() if key in names}
        try:
            return merged(kind, section, pairs, self._environment, options)
        except ConfigError as error:
            called = next((one.names for one in settings_of(kind) if one.name == error.field), (error.field,))
            written = next((name for name in called if name in pairs), None)
            if written is None or (options or {}).get(error.field) is not None:
                raise
            raise ConfigError(f"{self.path}: {written}", error.problem, error.remedy) from None

    def ignored(self, fixed: Mapping[str, Fixed]) -> tuple[str, ...]:
        """Return what no `load` read: tables of other servers, or properties that have no effect here.

        Args:
            fixed: Settings that must not be ignored, by upstream's name.

        Raises:
            ConfigError: One of `fixed` has an unsupported value, or a key is a misspelt setting.
        """
        if self._tables is not None:
            return tuple(f"[{name}]" for name in self._tables if name not in self._loaded)
        ignored = []
        for key, value in self._pairs.items():
            if key in self._known:
                continue
            if key not in fixed:
                self._check_spelling(key, [*self._known, *fixed])
                ignored.append(key)
            elif (allowed := fixed[key].allowed) is None:
                ignored.append(key)
            elif value.lower() not in map(str.lower, allowed):
                raise ConfigError(f"{self.path}: {key}", f"{value!r} is not supported", fixed[key].remedy)
        return tuple(ignored)

    def _check_spelling(self, key: str, known: Sequence[str]) -> None:
        if _is_near(key, known) or _folded(key) in map(_folded, known):
            raise ConfigError(f"{self.path}: {key}", "unknown setting", suggestion(key, known))


def _folded(key: str) -> str:
    """Return a key in lower case without punctuation, to compare spellings."""
    return key.lower().translate({ord(mark): None for mark in "._-"})


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file; keys without a value are ignored, as upstream does.

    Comments may have any encoding: those of many files are in GBK.

    Raises:
        ConfigError: The file cannot be read, is not UTF-8, is TOML, or has no values.
    """
    pairs = properties.parse(_read(path).decode("utf-8-sig", "surrogateescape"))
    for key, value in pairs.items():
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError as error:
            place = f"{path}: {key}" if key.isidentifier() else str(path)
            raise ConfigError(place, "is not text in UTF-8") from error
        if key.startswith("["):
            raise ConfigError(str(path), f"{key} belongs to a TOML file", "name the file *.toml")
    given = {key: value.strip() for key, value in pairs.items() if value.strip()}
    # Upstream's own files have keys without a value, but a file of only such keys is no settings file.
    if pairs and not given:
        raise ConfigError(str(path), "sets nothing", "settings are lines such as brokerName=broker-a")
    return given
