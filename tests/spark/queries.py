"""Streaming queries of tests, started on machines of any speed."""

import contextlib
from typing import Any

from pyspark.errors import StreamingQueryException

INITIALIZING = "Initializing sources"
TOO_LATE = "Python worker failed to connect back"
"""Spark gives the process that follows a source ten seconds to start, and no setting changes that."""


def start_query(writer: Any, *path: str) -> Any:
    """Start a query, and once more whenever Spark did not wait for its source to come up."""
    while True:
        query = writer.start(*path)
        while query.isActive and query.status["message"] == INITIALIZING:
            with contextlib.suppress(StreamingQueryException):
                query.awaitTermination(0.05)
        if TOO_LATE not in str(query.exception()):
            return query
