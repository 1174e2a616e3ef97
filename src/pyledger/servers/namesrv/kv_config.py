"""The KV config of a name server, stored in a file that upstream's name server can read.

A change is on disk before it is visible or confirmed. Upstream shows it first, and confirms it even if the
file could not be written.

Source: RocketMQ namesrv/.../KVConfigManager.java, KVConfigSerializeWrapper.java.
"""

import asyncio
import json
from pathlib import Path

from pyledger.atomic_file import backup_of, replace_file
from pyledger.errors import ConfigError, MalformedJsonError
from pyledger.protocol.namesrv.kv_table import KVTable
from pyledger.wire import fastjson

DEFAULT_PATH = Path("namesrv", "kvConfig.json")
"""Path in the home folder, as in upstream."""


class KVConfig:
    """A `KVTable` and its file."""

    def __init__(self, path: Path) -> None:
        """Read the table.

        Args:
            path: The file; the first change creates it and its folder.

        Raises:
            ConfigError: Neither the file nor its `.bak` can be read.
        """
        self.path = path
        self.table = read_table(path)
        self._writing = asyncio.Lock()

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value.

        Raises:
            ConfigError: The file cannot be written; nothing changed.
        """
        async with self._writing:
            changed = KVTable(self.table.namespaces())
            changed.put(namespace, key, value)
            await self._replace(changed)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value if it exists.

        Raises:
            ConfigError: The file cannot be written; nothing changed.
        """
        async with self._writing:
            if self.table.get(namespace, key) is None:
                return
            changed = KVTable(self.table.namespaces())
            changed.delete(namespace, key)
            await self._replace(changed)

    async def _replace(self, changed: KVTable) -> None:
        await asyncio.to_thread(write_table, self.path, changed)
        self.table = changed


def write_table(path: Path, table: KVTable) -> None:
    """Replace the file."""
    document = {"configTable": table.namespaces()}
    content = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}") from error


def read_table(path: Path) -> KVTable:
    """Read the file or, if it is missing or damaged, its `.bak`; without either, return an empty table."""
    broken: ConfigError | None = None
    for candidate in (path, backup_of(path)):
        try:
            text = candidate.read_bytes().decode()
            if text.strip():
                return parsed_table(fastjson.parse(text))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ConfigError(str(candidate), f"cannot be read: {error.strerror}") from error
        except (MalformedJsonError, ValueError) as error:
            remedy = "restore it, or remove it and its .bak to start without"
            broken = broken or ConfigError(str(candidate), f"is no key-value table ({error})", remedy)
    if broken is not None:
        raise broken
    return KVTable()


def parsed_table(document: object) -> KVTable:
    """Create the table from its document.

    Raises:
    ValueError: It is malformed.
    """
    found = document.get("configTable") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not all(isinstance(table, dict) for table in found.values()):
        raise ValueError("configTable is no table of tables")
    return KVTable(
        {
            str(namespace): {str(key): str(value) for key, value in table.items() if value is not None}
            for namespace, table in found.items()
        }
    )
