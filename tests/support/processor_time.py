"""What pure code costs, whatever else a test process has in memory and does in other threads."""

import gc
import time
from collections.abc import Callable


def processor_seconds(work: Callable[[], object], attempts: int = 3) -> float:
    """The least processor time that this thread needed; no garbage is collected meanwhile."""
    found = []
    for _ in range(attempts):
        gc.disable()
        try:
            began = time.thread_time()
            work()
            found.append(time.thread_time() - began)
        finally:
            gc.enable()
    return min(found)
