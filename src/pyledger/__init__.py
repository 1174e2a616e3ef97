"""PyLedger: the message store of Apache RocketMQ, without a JVM.

    from pyledger import Message, MessageStore

    with MessageStore.open("my-store") as store:
        store.put(Message("orders", b"one"))

The public names, and what may change: docs/reference/public_api.md.
"""

import sys
from typing import TYPE_CHECKING

from pyledger.lazy_names import lazy_names

if sys.platform not in ("linux", "darwin") or sys.maxsize < 1 << 32 or sys.byteorder != "little":
    raise ImportError("pyledger supports Linux and macOS on 64-bit little-endian processors")

if TYPE_CHECKING:
    from pyledger.bookkeeper import AsyncLedgerClient, LedgerClient
    from pyledger.client import (
        Admin,
        AsyncAdmin,
        AsyncProducer,
        AsyncPullConsumer,
        AsyncPushConsumer,
        Producer,
        PullConsumer,
        PushConsumer,
    )
    from pyledger.errors import PyLedgerError
    from pyledger.model.message import Message, MessageQueue
    from pyledger.store import MessageStore, StoreReader
    from pyledger.version import __version__
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "pyledger.bookkeeper": ("AsyncLedgerClient", "LedgerClient"),
            "pyledger.client": (
                "Admin",
                "AsyncAdmin",
                "AsyncProducer",
                "AsyncPullConsumer",
                "AsyncPushConsumer",
                "Producer",
                "PullConsumer",
                "PushConsumer",
            ),
            "pyledger.errors": ("PyLedgerError",),
            "pyledger.model.message": ("Message", "MessageQueue"),
            "pyledger.store": ("MessageStore", "StoreReader"),
            "pyledger.version": ("__version__",),
        },
    )

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncLedgerClient",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "LedgerClient",
    "Message",
    "MessageQueue",
    "MessageStore",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "PyLedgerError",
    "StoreReader",
    "__version__",
]
