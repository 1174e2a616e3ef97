"""Servers in the process of a test: a broker with its name server, and a cluster of bookies.

The pytest fixtures `pyledger_broker` and `pyledger_bookies` start them.
"""

from typing import TYPE_CHECKING

from pyledger.lazy_names import lazy_names

if TYPE_CHECKING:
    from pyledger.servers.local.bookies import LocalBookies
    from pyledger.servers.local.rocketmq import LocalBroker
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "pyledger.servers.local.bookies": ("LocalBookies",),
            "pyledger.servers.local.rocketmq": ("LocalBroker",),
        },
    )

__all__ = ["LocalBookies", "LocalBroker"]
