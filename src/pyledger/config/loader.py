"""Settings from a TOML file and the environment. The only module that reads an environment variable.

The environment wins over the file, the file over the defaults. A variable is named
`PYLEDGER_<SECTION>_<FIELD>`, such as `PYLEDGER_STORE_RETENTION_HOURS`.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pyledger.config.fields import Settings, build, settings_of, suggestion
from pyledger.errors import ConfigError

S = TypeVar("S", bound=Settings)


def load(
    kind: type[S], section: str, path: Path | None = None, environment: Mapping[str, str] | None = None
) -> S:
    """Load the settings of one section.

    Args:
        kind: The settings class.
        section: Table of the TOML file and part of the variables' names, such as `store`.
        path: A TOML file; None reads the environment alone.
        environment: None: the environment of the process.

    Raises:
        ConfigError: the file cannot be read, a key or variable is unknown, or a value is wrong.
    """
    from_file = {} if path is None else read_section(path, section)
    from_environment = read_environment(kind, section, os.environ if environment is None else environment)
    taken = {one.name: one.upstream for one in settings_of(kind) if one.name in from_environment}
    kept = {k: v for k, v in from_file.items() if k not in taken and k not in taken.values()}
    return build(kind, {**kept, **from_environment})


def read_section(path: Path, section: str) -> dict[str, object]:
    """One table of a TOML file; empty when the file has no such table."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file).get(section, {})
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(section, f"is not a table in {path}", f"write [{section}]")
    return table


def read_environment(kind: type[Settings], section: str, environment: Mapping[str, str]) -> dict[str, object]:
    """The variables of one section, by field name."""
    prefix = f"PYLEDGER_{section.upper()}_"
    names = {prefix + one.name.upper(): one.name for one in settings_of(kind)}
    found: dict[str, object] = {}
    for variable, value in environment.items():
        if variable in names:
            found[names[variable]] = value
        elif variable.startswith(prefix):
            raise ConfigError(variable, "unknown setting", suggestion(variable, names))
    return found
