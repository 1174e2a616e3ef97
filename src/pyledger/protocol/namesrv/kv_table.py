"""The KV config of a name server: namespace, key, value.

Source: RocketMQ namesrv/.../KVConfigManager.java.
"""

from collections.abc import Mapping


class KVTable:
    """Texts by namespace and key. An emptied namespace stays, as in upstream."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._namespaces = {name: dict(table) for name, table in (namespaces or {}).items()}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value."""
        self._namespaces.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value if it exists."""
        self._namespaces.get(namespace, {}).pop(key, None)

    def table(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace; None if it was never written."""
        found = self._namespaces.get(namespace)
        return None if found is None else dict(found)

    def namespaces(self) -> dict[str, dict[str, str]]:
        """Return the whole table, to be stored."""
        return {name: dict(table) for name, table in self._namespaces.items()}
