"""The progress of timer delivery on disk: in our file, and in upstream's, for a broker of Java.

Ours is `config/timerProgress.json`. Upstream has `config/timercheck`, a log of waiting messages (`timerlog`)
and a wheel over it (`timerwheel`), which it rebuilds from the log. Upstream continues in the timer topic
after the last message that the log names, and delivers what is due there at once. A log that lags would make
it deliver again, so ours is written when a broker closes, and removed when it starts.

Source: RocketMQ store/.../timer/TimerMessageStore.java (recover), TimerCheckpoint.java, TimerLog.java.
"""

import shutil
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from pyledger.atomic_file import flush_folder
from pyledger.errors import MalformedBodyError, StoreFormatError, StoreIOError
from pyledger.model.tags import java_hash
from pyledger.model.topic import NO_VERSION, DataVersion
from pyledger.protocol.broker.timer_messages import Timed, TimerProgress
from pyledger.regular_file import open_regular, read_regular
from pyledger.store.files.config_files import opened_table
from pyledger.store.files.disk_error import disk_error
from pyledger.store.files.folder import is_folder
from pyledger.store.files.meta_file import write_file, write_json
from pyledger.system_calls import flush_file
from pyledger.wire.remoting.bodies.timer_checkpoint import NUMBERS, TimerCheckpoint

TIMER_PROGRESS_FILE = "timerProgress.json"
TIMER_KEYS = {
    "restart_offset": "restartOffset",
    "next_offset": "nextOffset",
    "first_ms": "firstDeliverMs",
    "first_offset": "firstOffset",
}
FOREIGN_KEY = "foreign"
TIMER_CHECK_FILE = "timercheck"
TIMER_CHECK_BYTES = 4096
TIMER_LOG_FOLDER = "timerlog"
TIMER_WHEEL_FILE = "timerwheel"
FRESH_LOG = "timerlog.tmp"
TIMER_LOG_FILE_BYTES = 100 << 20
UNIT = struct.Struct(">iqiqiqiiq")
"""Size, place of the unit before for the same time, kind, base of the time and ms after it, the record's
physical offset and size, hash of its topic, 0."""
PLAIN = 1
"""Kind of a unit: deliver it."""
NONE_BEFORE = -1
OUR_STATE = 0x5079_4C65_6467_6572
"""State in the version of our files. Upstream writes another state and keeps the bytes after it."""


class RecordPlace(NamedTuple):
    """Location of a record."""

    physical_offset: int
    """Bytes."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TimerFile:
    """`timerProgress.json`, or upstream's files."""

    progress: TimerProgress = field(default_factory=TimerProgress)
    now_ms: int = 0
    """Time of that progress, floored to the precision."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the folder `config`: what was written last, by us or by upstream's broker."""
        check = read_check(folder / TIMER_CHECK_FILE)
        with opened_table(folder / TIMER_PROGRESS_FILE, "timerProgress") as (table, found):
            if found and (check is None or check.first_ms is not None):
                numbers = {name: int(table[key]) for name, key in TIMER_KEYS.items()}
                return cls(TimerProgress(**numbers, foreign=bool(table.get(FOREIGN_KEY, False))))
        return cls() if check is None else cls(progress_of(check))

    def write(self, folder: Path) -> None:
        """Into the folder `config`. Upstream's wheel and log are then out of date and are removed."""
        table: dict[str, int | bool] = {key: getattr(self.progress, name) for name, key in TIMER_KEYS.items()}
        if self.progress.foreign:
            table[FOREIGN_KEY] = True
        write_json(folder / TIMER_PROGRESS_FILE, {"timerProgress": table})
        write_check(folder, check_of(self.progress, self.now_ms, self.progress.restart_offset))
        root = folder.parent
        try:
            # The wheel first: it names positions in the log.
            for name in (TIMER_WHEEL_FILE, FRESH_LOG):
                (root / name).unlink(missing_ok=True)
            if is_folder(str(root / TIMER_LOG_FOLDER)):
                shutil.rmtree(root / TIMER_LOG_FOLDER)
                flush_folder(root)
        except OSError as error:
            raise disk_error(error.filename or root, "remove", error) from error


def progress_of(found: TimerCheckpoint) -> TimerProgress:
    """Progress of timer delivery according to a checkpoint, a master's or one on disk."""
    known = found.last_timer_queue_offset
    if found.first_ms is None:
        return TimerProgress(0, known, found.last_read_time_ms, foreign=True)
    return TimerProgress(found.restart_offset, known, found.first_ms, found.first_offset)


def check_of(
    progress: TimerProgress, now_ms: int, next_offset: int, version: DataVersion = NO_VERSION
) -> TimerCheckpoint:
    """A checkpoint for upstream: all before a time is delivered, what waits before an offset is in its wheel.

    Args:
        progress: Progress of delivery.
        now_ms: The time, floored to the precision; upstream delivers nothing that is due before.
        next_offset: Offset of the timer topic (units) from which upstream continues.
        version: Of the checkpoint.
    """
    read_ms = min(now_ms, progress.first_ms) if progress.first_ms else now_ms
    return TimerCheckpoint(
        read_ms,
        last_timer_queue_offset=next_offset,
        master_timer_queue_offset=next_offset,
        version=version,
        restart_offset=progress.restart_offset,
        first_offset=progress.first_offset,
        first_ms=progress.first_ms,
    )


def read_check(path: Path) -> TimerCheckpoint | None:
    """The file `timercheck`; None where there is none.

    Raises:
        StoreFormatError: it is too short.
        StoreIOError: the file cannot be read.
    """
    try:
        content = read_regular(path)
        found = TimerCheckpoint.decode(content)
        ours = found.version.state_version == OUR_STATE
        return found if ours else TimerCheckpoint.decode(content[: NUMBERS.size])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreIOError(str(path), "read", error.strerror or str(error)) from error
    except MalformedBodyError as error:
        remedy = "restore it, or remove it to deliver all timer messages of the log again"
        raise StoreFormatError(str(path), "is too short", remedy) from error


def write_check(folder: Path, check: TimerCheckpoint) -> None:
    """Replace the file `timercheck` in the folder `config`."""
    check = check._replace(version=DataVersion(state_version=OUR_STATE))
    content = check.encode().ljust(TIMER_CHECK_BYTES, b"\0")
    write_file(folder / TIMER_CHECK_FILE, content, backup=False)


DELAY_MAX_MS = 2**31 - 1
"""A unit holds no more; upstream stores such messages again until they are nearer."""


def hand_over(
    folder: Path,
    progress: TimerProgress,
    now_ms: int,
    waiting: Iterable[Timed],
    last: RecordPlace | None,
    precision_ms: int,
) -> bool:
    """Write a log of the waiting messages, with which upstream's broker continues as with its own.

    Args:
        folder: The folder `config`.
        progress: Progress of delivery, as in the last `TimerFile`.
        now_ms: The time, floored to the precision.
        waiting: The waiting messages.
        last: The record of the last known message, after which upstream continues. None: it was deleted.
        precision_ms: Length of a slot of the wheel.

    Returns:
        Whether it was written. If not, upstream's broker delivers some messages again.

    Raises:
        StoreFullError: the disk is full.
        StoreIOError: another system call failed.
    """
    units = log_units(waiting, last, now_ms, precision_ms)
    if units is None:
        return False
    root = folder.parent
    if units:
        fresh = root / FRESH_LOG
        try:
            with open(fresh, "wb", opener=open_regular) as file:
                file.write(units)
                file.truncate(TIMER_LOG_FILE_BYTES)
                file.flush()
                flush_file(file.fileno())
            (root / TIMER_LOG_FOLDER).mkdir(exist_ok=True)
            fresh.replace(root / TIMER_LOG_FOLDER / f"{0:020d}")
            flush_folder(root / TIMER_LOG_FOLDER)
            flush_folder(root)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise disk_error(error.filename or fresh, "write", error) from error
    write_check(folder, check_of(progress, now_ms, progress.next_offset))
    return True


def log_units(
    waiting: Iterable[Timed], last: RecordPlace | None, now_ms: int, precision_ms: int
) -> bytes | None:
    """The log of what waits; None where it cannot be written.

    It ends with the last message that is known, which need not wait: then its unit is in a slot of the past.
    """
    rows = sorted(waiting, key=lambda one: one.offset)
    if not rows:
        return None if last is None else unit(NONE_BEFORE, now_ms, -precision_ms, last, "")
    units: list[bytes] = []
    before: dict[int, int] = {}
    for one in rows:
        if one.physical_offset < 0 or one.deliver_ms - now_ms > DELAY_MAX_MS:
            return None
        deliver_ms = max(one.deliver_ms, now_ms)
        slot = deliver_ms // precision_ms
        place = RecordPlace(one.physical_offset, one.size_bytes)
        position = len(units) * UNIT.size
        units.append(unit(before.get(slot, NONE_BEFORE), now_ms, deliver_ms - now_ms, place, one.topic))
        before[slot] = position
    if last is None:
        return None
    if last.physical_offset != rows[-1].physical_offset:
        units.append(unit(NONE_BEFORE, now_ms, -precision_ms, last, ""))
    content = b"".join(units)
    return content if len(content) < TIMER_LOG_FILE_BYTES - UNIT.size else None


def unit(before: int, base_ms: int, delay_ms: int, place: RecordPlace, topic: str) -> bytes:
    """One unit of the log."""
    return UNIT.pack(UNIT.size, before, PLAIN, base_ms, delay_ms, *place, java_hash(topic), 0)
