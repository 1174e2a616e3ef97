"""Errors of subscriptions, topics and queue allocation."""

from pyledger.errors.base import EXIT_USAGE, PyLedgerError

SHOWN_CHARACTERS = 200
"""Limit for an expression in the text of an error, in characters."""


class DeliveryError(PyLedgerError):
    """A client's request to a broker is invalid."""

    code = 1500


class SubscriptionSyntaxError(DeliveryError):
    """The expression of a subscription cannot be parsed."""

    code = 1501
    exit_code = EXIT_USAGE

    def __init__(self, expression: str, problem: str) -> None:
        self.expression, self.problem = expression, problem
        super().__init__(f"subscription {expression[:SHOWN_CHARACTERS]!r}: {problem}")


class SqlSyntaxError(SubscriptionSyntaxError):
    """The expression of an SQL92 subscription is not in its grammar."""

    code = 1502


class TopicAttributeError(DeliveryError):
    """A change of a topic's attributes is not allowed."""

    code = 1503
    exit_code = EXIT_USAGE

    def __init__(self, attribute: str, problem: str) -> None:
        self.attribute, self.problem = attribute, problem
        super().__init__(f"topic attribute {attribute!r}: {problem}")


class RebalanceError(PyLedgerError):
    """The queues of a topic cannot be allocated; each member keeps its queues."""

    code = 1600
    retriable = True

    def __init__(self, subject: str, problem: str) -> None:
        self.subject, self.problem = subject, problem
        super().__init__(f"{subject}: {problem}; the allocation stays as it is")
