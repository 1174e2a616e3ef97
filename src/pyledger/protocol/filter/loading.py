"""Loads the parser of SQL92 filters on first use: most brokers never need it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyledger.protocol.filter.sql92 import SqlFilter


def sql_filter(expression: str) -> "SqlFilter":
    """Return the filter of an expression, compiled once.

    Raises:
        SqlSyntaxError: The expression is invalid; the error contains the position and the cause.
    """
    from pyledger.protocol.filter import sql92  # noqa: PLC0415 - a good part of a broker's start

    return sql92.sql_filter(expression)
