"""The metadata store in one SQLite file: for clusters on one machine, in one process or several.

A session locks its own file until its process exits. Another session that finds the lock free ends the
session and deletes its ephemeral nodes. No clock is involved: a slow or stopped process keeps its nodes; the
nodes of a killed process are deleted at the next poll.
"""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pyledger.errors import (
    MetadataUnreachableError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeVersionError,
    NoMetadataFileError,
    NoNodeError,
)
from pyledger.metadata.change_signal import Signal
from pyledger.metadata.store import SEQUENCE_DIGITS, MetadataStore, Node

P = ParamSpec("P")
T = TypeVar("T")

POLL_MS = 50
"""Poll interval for changes of other processes while a watch is open (ms)."""
BUSY_TIMEOUT_S = 60.0
FORMAT = 1
_SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL DEFAULT 0,
    session TEXT, next_sequence INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX node_parent ON node (parent);
CREATE INDEX node_session ON node (session) WHERE session IS NOT NULL;
CREATE TABLE session (name TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO node (path, parent, data) VALUES ('/', '', x'');
"""


class NodeFile:
    """The SQLite file. Used by one thread at a time."""

    def __init__(self, path: Path, *, make: bool) -> None:
        self.path, self.make = path, make
        self.session = ""
        self._locks = Path(f"{path}.sessions")
        self._lock: int | None = None
        self._reaped = 0
        """Number of sessions ended because their processes had exited."""
        self._database: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open or create the file and begin a session."""
        if not self.path.exists():
            if not self.make:
                raise NoMetadataFileError(str(self.path))
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.is_file():
            raise MetadataUnreachableError(str(self.path), "it is not a regular file")
        try:
            self._open_database()
            self._locks.mkdir(exist_ok=True)
            self._begin_session()
        except BaseException:
            self._let_go()
            raise

    def _open_database(self) -> None:
        database = self._database = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        database.execute("BEGIN")  # one snapshot: another process may be creating the tables
        is_foreign = (
            not self._user_version(database) and database.execute("SELECT 1 FROM sqlite_master").fetchone()
        )
        database.execute("COMMIT")
        if is_foreign:
            raise MetadataUnreachableError(str(self.path), "it is a database of another program")
        database.execute("PRAGMA journal_mode = WAL")
        # An acknowledged change must survive a power failure.
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA fullfsync = ON")  # macOS: the drive's cache, too
        with self._changing() as change:
            found = self._user_version(change)
            if found == 0:
                for statement in _SCHEMA.split(";"):
                    change.execute(statement)
                change.execute(f"PRAGMA user_version = {FORMAT}")
            elif found != FORMAT:
                raise MetadataUnreachableError(
                    str(self.path), f"its format is {found}; only {FORMAT} is supported"
                )

    @staticmethod
    def _user_version(database: sqlite3.Connection) -> int:
        return int(database.execute("PRAGMA user_version").fetchone()[0])

    def close(self, *, clean: bool = True) -> None:
        """End the session. Unless `clean`, other sessions must delete its ephemeral nodes."""
        if self._database is None:
            return
        try:
            if clean:
                with self._changing() as change:
                    self._end_session(change, self.session)
                (self._locks / self.session).unlink(missing_ok=True)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Close the file. If the session remains, the next session to check ends it."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._release()

    def create(self, path: str, data: bytes, ephemeral: bool, sequence: bool) -> str:
        """See `MetadataStore.create`."""
        parent = parent_of(path)
        with self._changing() as change:
            above = change.execute(
                "SELECT session, next_sequence FROM node WHERE path = ?", (parent,)
            ).fetchone()
            if above is None or above[0] is not None:
                raise NoNodeError(parent)
            if sequence:
                path += f"{above[1]:0{SEQUENCE_DIGITS}d}"
            change.execute("UPDATE node SET next_sequence = next_sequence + 1 WHERE path = ?", (parent,))
            try:
                change.execute(
                    "INSERT INTO node (path, parent, data, session) VALUES (?, ?, ?, ?)",
                    (path, parent, data, self._live(change) if ephemeral else None),
                )
            except sqlite3.IntegrityError:
                raise NodeExistsError(path) from None
        return path

    def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        found = self._open.execute(
            "SELECT data, version, session IS NOT NULL FROM node WHERE path = ?", (path,)
        ).fetchone()
        return None if found is None else Node(bytes(found[0]), found[1], bool(found[2]))

    def set(self, path: str, data: bytes, version: int | None) -> int:
        """See `MetadataStore.set`."""
        with self._changing() as change:
            present = self._expect(change, path, version)
            change.execute("UPDATE node SET data = ?, version = ? WHERE path = ?", (data, present + 1, path))
        return present + 1

    def delete(self, path: str, version: int | None) -> None:
        """See `MetadataStore.delete`."""
        with self._changing() as change:
            self._expect(change, path, version)
            if change.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
                raise NodeNotEmptyError(path)
            change.execute("DELETE FROM node WHERE path = ?", (path,))

    def children(self, path: str) -> tuple[str, ...]:
        """See `MetadataStore.children`."""
        found = self._open.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,)).fetchall()
        if not found and self.get(path) is None:
            raise NoNodeError(path)
        return tuple(one.rpartition("/")[2] for (one,) in found)

    def end_dead_sessions(self) -> tuple[int, int]:
        """End sessions whose processes have exited.

        Returns:
            A value that changes after changes of other sessions, and after each session ended here.
        """
        names = [name for (name,) in self._open.execute("SELECT name FROM session ORDER BY name")]
        if self.session not in names:
            self._release()
            self._begin_session()
        for name in names:
            if name != self.session:
                self._reap(name)
        # SQLite's number covers only changes of other connections.
        return int(self._open.execute("PRAGMA data_version").fetchone()[0]), self._reaped

    # --- sessions

    def _begin_session(self) -> None:
        self.session = uuid.uuid4().hex
        self._lock = os.open(self._locks / self.session, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # Lock first, then the name: a process that reads the name finds the lock held.
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        with self._changing() as change:
            change.execute("INSERT INTO session (name) VALUES (?)", (self.session,))

    def _reap(self, name: str) -> None:
        try:
            lock = os.open(self._locks / name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            lock = None
        try:
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self._changing() as change:
                self._end_session(change, name)
            self._reaped += 1
            (self._locks / name).unlink(missing_ok=True)
        except BlockingIOError:
            pass  # its process is running
        finally:
            if lock is not None:
                os.close(lock)

    def _end_session(self, change: sqlite3.Connection, name: str) -> None:
        change.execute("DELETE FROM node WHERE session = ?", (name,))
        change.execute("DELETE FROM session WHERE name = ?", (name,))

    def _live(self, change: sqlite3.Connection) -> str:
        if change.execute("SELECT 1 FROM session WHERE name = ?", (self.session,)).fetchone() is None:
            raise MetadataUnreachableError(str(self.path), "this session was ended by another process")
        return self.session

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- the database

    @property
    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise MetadataUnreachableError(str(self.path), "it is closed")
        return self._database

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        database = self._open
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")

    def _expect(self, change: sqlite3.Connection, path: str, version: int | None) -> int:
        found = change.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
        if found is None:
            raise NoNodeError(path)
        if version is not None and found[0] != version:
            raise NodeVersionError(path)
        return int(found[0])


class SqliteStore(MetadataStore):
    """A session with a file. Its work runs on its own thread."""

    def __init__(self, path: str | os.PathLike[str], *, poll_ms: int = POLL_MS, make: bool = True) -> None:
        """Create a session; `start` begins it.

        Args:
            path: The file. A folder of locks is created beside it.
            poll_ms: Poll interval for changes of other processes (ms).
            make: Create the file if it does not exist.
        """
        self.path = Path(path)
        self._file = NodeFile(self.path, make=make)
        self._thread: ThreadPoolExecutor | None = None
        self._changed = Signal()
        self._poll_ms = poll_ms
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Open or create the file.

        Raises:
            NoMetadataFileError: It does not exist and may not be created.
        """
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pyledger-metadata")
        try:
            await self._do(NodeFile.open)
            await self._do(NodeFile.end_dead_sessions)
        except BaseException:
            await self.abandon()
            raise
        self._poll = asyncio.get_running_loop().create_task(self._poll_changes())

    async def close(self) -> None:
        """Close the session."""
        await self._end(clean=True)

    async def abandon(self) -> None:
        """End as if the process were killed: ephemeral nodes stay until another session checks."""
        await self._end(clean=False)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """See `MetadataStore`."""
        return await self._change(NodeFile.create, path, data, ephemeral, sequence)

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore`."""
        return await self._do(NodeFile.get, path)

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """See `MetadataStore`."""
        return await self._change(NodeFile.set, path, data, version)

    async def delete(self, path: str, version: int | None = None) -> None:
        """See `MetadataStore`."""
        await self._change(NodeFile.delete, path, version)

    async def children(self, path: str) -> tuple[str, ...]:
        """See `MetadataStore`."""
        return await self._do(NodeFile.children, path)

    async def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        """See `MetadataStore`."""
        async for state in self._states(partial(self.get, path)):
            yield state

    async def watch_children(self, path: str) -> AsyncGenerator[tuple[str, ...] | None, None]:
        """See `MetadataStore`."""

        async def names() -> tuple[str, ...] | None:
            try:
                return await self.children(path)
            except NoNodeError:
                return None

        async for state in self._states(names):
            yield state

    async def sessions(self) -> AsyncGenerator[str, None]:
        """See `MetadataStore`."""

        async def name() -> str:
            return self._file.session

        async for state in self._states(name):
            yield state

    # --- inside

    async def _states(self, read: Callable[[], Awaitable[T]]) -> AsyncGenerator[T, None]:
        seen = self._changed.count
        yielded = await read()
        yield yielded
        while True:
            await self._changed.wait(seen)
            seen = self._changed.count
            state = await read()
            if state != yielded:
                yielded = state
                yield state

    async def _poll_changes(self) -> None:
        version = (0, 0)
        while True:
            with contextlib.suppress(MetadataUnreachableError):
                session = self._file.session
                found = await self._do(NodeFile.end_dead_sessions)
                if found != version or session != self._file.session:
                    version = found
                    self._changed.give()
            await asyncio.sleep(self._poll_ms / 1000)

    async def _change(
        self, work: Callable[Concatenate[NodeFile, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        done = await self._do(work, *args, **kwargs)
        self._changed.give()
        return done

    async def _do(self, work: Callable[Concatenate[NodeFile, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed or self._thread is None:
            raise MetadataUnreachableError(str(self.path), "it is not open")
        call = partial(work, self._file, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except (sqlite3.Error, OSError) as error:
            raise MetadataUnreachableError(str(self.path), str(error)) from error

    async def _end(self, *, clean: bool) -> None:
        if self._closed or self._thread is None:
            return
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        try:
            await self._do(NodeFile.close, clean=clean)
        finally:
            self._closed = True
            self._thread.shutdown()


def parent_of(path: str) -> str:
    """Return the path of the parent node; `/` is the root."""
    return path.rpartition("/")[0] or "/"
