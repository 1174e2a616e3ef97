"""From a path to the parts of a live store: settings that fit the folder, lock, recovery, abort file."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from mmap import PAGESIZE
from pathlib import Path

from pyledger._core import (
    CommitLog,
    Dispatcher,
    DLedgerLog,
    EventNotifier,
    GroupCommit,
    IndexFileSet,
    LogView,
    MappedFile,
    MappedFileQueue,
    scan,
)
from pyledger.atomic_file import flush_folder
from pyledger.config.fields import changed
from pyledger.config.store import StoreConfig
from pyledger.errors import IllegalMessageError, StoreFormatError
from pyledger.regular_file import open_regular
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.files import checkpoint as checkpoint_file
from pyledger.store.files.archive_leftovers import remove_leftovers
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.disk_error import NO_ROOM, disk_error
from pyledger.store.files.folder import (
    ABORT_FILE,
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    LOG_FOLDER,
    QUEUE_FOLDER,
    StoreFolder,
    is_folder,
    offset_files,
    read_folder,
    reject_foreign_parts,
)  # fmt: skip
from pyledger.store.files.lock import StoreLock, lock_store
from pyledger.store.files.rebuild_commit import undo_rebuild
from pyledger.store.messages.recovery import (
    LogVerdict,
    RecoveredStore,
    RecoveryReport,
    judge_log,
    load_log,
    recover,
)
from pyledger.store.messages.tmpfs_guard import check_free_space
from pyledger.store.queues.queue_reader import QueueReader, default_limits
from pyledger.store.queues.queue_set import ConsumeQueueSet
from pyledger.store.reading.lost_end import prove_lost_end
from pyledger.store.reading.queue_ends import queue_ends
from pyledger.system_calls import flush_file

SYNC = "sync"


@dataclass(slots=True)
class StoreComponents:
    """Everything that a live store is made of."""

    path: str
    config: StoreConfig
    lock: StoreLock
    log: MappedFileQueue
    commit_log: CommitLog
    queues: ConsumeQueueSet
    index: IndexFileSet | None
    dispatcher: Dispatcher
    group: GroupCommit
    dispatch_notifier: EventNotifier
    checkpoint: StoreCheckpoint
    confirmed_where: Callable[[], int]
    put_group: GroupCommit | None
    """What puts wait for; None: they return once they are appended."""
    reader: QueueReader
    report: RecoveryReport
    reject_appends: Callable[[Callable[[], Exception] | None], None]
    entries: DLedgerStore | None = None
    """The DLedger log that `log` is the data of; None: the store's own log."""

    def dispatch_from(self, log_start: int) -> None:
        """The log begins at a physical offset (bytes) that dispatch has not reached: go on there."""
        self.dispatcher.start_at(log_start)
        self.queues.delete_heads(log_start)


def open_parts(
    path: str,
    config: StoreConfig | None,
    options: Mapping[str, object],
    *,
    create: bool,
    truncate_at_corruption: bool,
) -> StoreComponents:
    """Open a folder for writing; see `MessageStore.open`."""
    if config is None:
        StoreConfig.from_properties(options)
    else:
        config = changed(StoreConfig, config, options)
    reject_foreign_parts(path)
    try:
        _prepare_folder(path, create=create)
        return _open_locked(path, config, options, truncate_at_corruption=truncate_at_corruption)
    except OSError as error:
        raise disk_error(error.filename or path, "open", error) from error


def _open_locked(
    path: str, config: StoreConfig | None, options: Mapping[str, object], *, truncate_at_corruption: bool
) -> StoreComponents:
    lock = lock_store(path).acquire()
    try:
        check_free_space(path)
        undo_rebuild(path)
        remove_leftovers(path)
        folder = read_folder(path)
        settings = config or fit_settings(folder, options)
        recovered = _recover_folder(folder, settings, truncate_at_corruption=truncate_at_corruption)
        return _assemble(path, settings, lock, recovered)
    except BaseException:
        lock.release()
        raise


def _prepare_folder(path: str, *, create: bool) -> None:
    """See that there is a folder to lock; make it, and an empty log in it, when it is not there."""
    if create and not is_folder(os.path.join(path, LOG_FOLDER)):
        if is_folder(path):
            _refuse_other_folder(path)
        try:
            os.makedirs(os.path.join(path, LOG_FOLDER))
        except OSError as error:
            raise disk_error(path, "create", error) from error
        flush_folder(Path(path))
        flush_folder(Path(path).absolute().parent)
    read_folder(path)


def _refuse_other_folder(path: str) -> None:
    """A store is not begun inside a folder of log files, nor where only queues are left."""
    for name in os.listdir(path):
        if (len(name) == 20 and name.isdecimal()) or name.startswith("dledger-"):
            read_folder(path)
    if any(is_folder(os.path.join(path, name)) for name in (QUEUE_FOLDER, BATCH_QUEUE_FOLDER)):
        raise _orphans(path)


def fit_settings(folder: StoreFolder, options: Mapping[str, object]) -> StoreConfig:
    """Settings from options; file sizes that are not given are those that the folder has."""
    plain = StoreConfig.from_properties(options)
    default = StoreConfig()
    found: dict[str, object] = {}
    if folder.log_files:
        if not _names_log_size(options):
            _raise_if_truncated(folder)
        found["mapped_file_size_bytes"] = folder.log_file_size_bytes
    found["consume_queue_file_size_bytes"] = folder.queue_file_size_bytes(QUEUE_FOLDER)
    found["batch_consume_queue_file_size_bytes"] = folder.queue_file_size_bytes(BATCH_QUEUE_FOLDER)
    if folder.index_files:
        found["index_slots"], found["index_entries"] = folder.index_geometry()
    given = {name for name in found if getattr(plain, name) != getattr(default, name)}
    return StoreConfig.from_properties({**{k: v for k, v in found.items() if k not in given}, **options})


def _raise_if_truncated(folder: StoreFolder) -> None:
    """Raise if the only log file was truncated, because its length would become the size of all files.

    A full file ends in zeroes or in a blank record. Only files that are not whole pages are checked.
    """
    size_bytes = folder.log_file_size_bytes
    if len(folder.log_files) > 1 or size_bytes % PAGESIZE == 0:
        return
    file = MappedFile.open(folder.log_files[0].path)
    try:
        stop = scan(LogView([file], file.start_offset + file.mapped_bytes), file.start_offset, check=False)
    finally:
        file.close()
    if stop.status == "short" or (stop.status == "end" and not stop.blank_count):
        raise StoreFormatError(
            file.path,
            f"has {size_bytes} bytes, and its last record ends there or later: the file was truncated",
            "run `pyledger repair`, or give mapped_file_size_bytes",
        )


def _names_log_size(options: Mapping[str, object]) -> bool:
    return "mapped_file_size_bytes" in options or "mappedFileSizeCommitLog" in options


def _recover_folder(
    folder: StoreFolder, config: StoreConfig, *, truncate_at_corruption: bool
) -> RecoveredStore:
    """Check the log, write the abort file, then recover."""
    known = checkpoint_file.read(os.path.join(folder.path, CHECKPOINT_FILE)) or StoreCheckpoint()
    log = load_log(folder.path, config)
    try:
        verdict = None
        if not log.files:
            _raise_for_orphans(folder)
        else:
            verdict = judge_log(
                log,
                clean=folder.clean,
                known=known,
                check_bodies=config.check_crc_on_recover or not folder.clean,
                truncate_at_corruption=truncate_at_corruption,
            )
            _raise_if_ends_in_archive(log, verdict)
            if folder.clean and not truncate_at_corruption:
                lost = prove_lost_end(folder, log.view(), verdict.end, known)
                if lost is not None:
                    raise lost.error()
        write_abort(folder.path)
        return recover(folder, config, log, verdict, clean=folder.clean, known=known)
    except BaseException:
        log.close()
        raise


def _raise_for_orphans(folder: StoreFolder) -> None:
    """Raise if there are queues without a log: queue offsets must not start again at 0."""
    homes = [path for kind in (QUEUE_FOLDER, BATCH_QUEUE_FOLDER) for *_, path in folder.queue_folders(kind)]
    heads = (files[0] for home in homes if (files := offset_files(home)))
    if any(queue_ends(folder)) or any(head.start_offset for head in heads):
        raise _orphans(folder.path)


def _orphans(path: str) -> StoreFormatError:
    return StoreFormatError(
        path,
        "there are consume queues but no commit log",
        "restore `commitlog`, or remove the queues to start an empty store",
    )


def _raise_if_ends_in_archive(log: MappedFileQueue, verdict: LogVerdict) -> None:
    file = log.find_file(verdict.end_offset)
    if file is not None and file.is_cold:
        raise StoreFormatError(
            file.path,
            f"is archived, and recovery would truncate the log in it, at {verdict.end_offset}",
            "run `pyledger unarchive` first",
        )


def write_abort(path: str) -> None:
    """Create the abort file, which means at the next opening that the shutdown was unclean.

    Only its name matters: on a full disk the file stays empty.
    """
    abort = os.path.join(path, ABORT_FILE)
    try:
        with open(abort, "wb", buffering=0, opener=open_regular) as file:
            try:
                file.write(b"%d" % os.getpid())
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
            flush_file(file.fileno())
        flush_folder(Path(path))
    except OSError as error:
        raise disk_error(abort, "write", error) from error


def remove_abort(path: str) -> None:
    """Remove the abort file, once everything is on disk and the queues are complete."""
    abort = os.path.join(path, ABORT_FILE)
    try:
        os.unlink(abort)
        flush_folder(Path(path))
    except OSError as error:
        raise disk_error(abort, "remove", error) from error


def _assemble(path: str, config: StoreConfig, lock: StoreLock, recovered: RecoveredStore) -> StoreComponents:
    log = recovered.log
    synchronous = config.flush_disk_type == SYNC
    dispatch_notifier = EventNotifier()
    group = GroupCommit(path, flushed_where=log.flushed_where)
    if synchronous:
        group.let_callers_flush(log, dispatch_notifier)

    def confirmed_where() -> int:
        return min(group.flushed_where, log.max_offset) if synchronous else log.max_offset

    # With sync flush there is nothing to dispatch until the flush, which wakes as well.
    commit_log = make_commit_log(config, recovered, notifier=None if synchronous else dispatch_notifier)
    return join_parts(
        path,
        config,
        lock,
        recovered,
        commit_log,
        group,
        dispatch_notifier,
        confirmed_where,
        waits=synchronous,
    )


def make_commit_log(
    config: StoreConfig,
    recovered: RecoveredStore,
    *,
    notifier: EventNotifier | None,
    entries: DLedgerLog | None = None,
) -> CommitLog:
    """The appending end of a recovered log, its queue offsets set; of a DLedger log with `entries`."""
    commit_log = CommitLog(
        recovered.log,
        store_host=(config.store_host, config.store_port),
        max_message_size_bytes=config.max_message_size_bytes,
        crc_property=config.crc_property,
        last_store_timestamp_ms=recovered.last_store_timestamp_ms,
        notifier=notifier,
        entries=entries,
    )
    for (topic, queue_id), queue in recovered.queues.queues.items():
        try:
            commit_log.set_next_queue_offset(topic, queue_id, queue.max_offset)
        except IllegalMessageError:
            # A name that upstream once allowed: its messages can be read, none can be added.
            continue
    for topic, queue_id, _, next_offset, _ in recovered.dispatcher.stalled:
        if topic:
            # Its files miss records of the log, so the log has its next queue offset.
            commit_log.set_next_queue_offset(topic, queue_id, next_offset)
    return commit_log


def join_parts(
    path: str,
    config: StoreConfig,
    lock: StoreLock,
    recovered: RecoveredStore,
    commit_log: CommitLog,
    group: GroupCommit,
    dispatch_notifier: EventNotifier,
    confirmed_where: Callable[[], int],
    *,
    waits: bool,
    entries: DLedgerStore | None = None,
) -> StoreComponents:
    """The parts around a log; `waits`: puts wait for the group, and its offset is what can be read."""
    log, queues = recovered.log, recovered.queues
    reader = QueueReader(
        log, queues, recovered.index, recovered.dispatcher, confirmed_where, default_limits()
    )
    return StoreComponents(
        path=path,
        config=config,
        lock=lock,
        log=log,
        commit_log=commit_log,
        queues=queues,
        index=recovered.index,
        dispatcher=recovered.dispatcher,
        group=group,
        dispatch_notifier=dispatch_notifier,
        checkpoint=recovered.checkpoint,
        confirmed_where=confirmed_where,
        put_group=group if waits else None,
        reader=reader,
        report=recovered.report,
        reject_appends=commit_log.reject_appends,
        entries=entries,
    )
