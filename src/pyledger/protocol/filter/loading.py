"""The door to SQL92 filters: most brokers never get one, so the parser is loaded for the first."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyledger.protocol.filter.sql92 import SqlFilter


def sql_filter(expression: str) -> "SqlFilter":
    """The filter of an expression, compiled once.

    Raises:
        SqlSyntaxError: says where and what.
    """
    from pyledger.protocol.filter import sql92  # noqa: PLC0415 - a good part of a broker's start

    return sql92.sql_filter(expression)
