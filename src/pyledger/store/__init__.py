"""Message stores on disk: write one, read any, check and repair them.

`MessageStore` is open for writing by one process. `StoreReader` reads any folder, also one that is being
written, and never changes it. `verify`, `repair`, `rebuild`, `archive` and `unarchive` need a closed folder.
"""

from typing import TYPE_CHECKING

from pyledger._core import set_body_decompressor
from pyledger.lazy_names import lazy_names
from pyledger.wire.compression import decompress

if TYPE_CHECKING:
    from pyledger._core import StoredMessage
    from pyledger.config.store import StoreConfig
    from pyledger.model.message import PutResult, QueueRange
    from pyledger.store.cold.archive import archive, unarchive
    from pyledger.store.maintenance.rebuild import rebuild
    from pyledger.store.maintenance.repair import repair
    from pyledger.store.maintenance.verify import verify
    from pyledger.store.messages.message_store import MessageStore
    from pyledger.store.queues.get_result import GetResult, GetStatus
    from pyledger.store.queues.units import Unit, Units
    from pyledger.store.reading.log_end import Damage
    from pyledger.store.reading.reader import StoreReader
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "pyledger._core": ("StoredMessage",),
            "pyledger.config.store": ("StoreConfig",),
            "pyledger.model.message": ("PutResult", "QueueRange"),
            "pyledger.store.cold.archive": ("archive", "unarchive"),
            "pyledger.store.maintenance.rebuild": ("rebuild",),
            "pyledger.store.maintenance.repair": ("repair",),
            "pyledger.store.maintenance.verify": ("verify",),
            "pyledger.store.messages.message_store": ("MessageStore",),
            "pyledger.store.queues.get_result": ("GetResult", "GetStatus"),
            "pyledger.store.queues.units": ("Unit", "Units"),
            "pyledger.store.reading.log_end": ("Damage",),
            "pyledger.store.reading.reader": ("StoreReader",),
        },
    )

set_body_decompressor(decompress)

__all__ = [
    "Damage",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "PutResult",
    "QueueRange",
    "StoreConfig",
    "StoreReader",
    "StoredMessage",
    "Unit",
    "Units",
    "archive",
    "rebuild",
    "repair",
    "unarchive",
    "verify",
]
