"""Event loops as in the tests of `net`."""

from tests.net.conftest import run

__all__ = ["run"]
