"""`satchel.hold`: a program is the one writer of a workspace, without an agent.

It appends rows to logs and puts files. What a call has returned from is durable, and counts as a whole or not at all.
The workspace is opened when it is used and released when it is not: between two calls another process may take it. So
nothing here is remembered from one opening to the next; each reads the record again.

A person's edit is taken at the next call, if it does not contradict what the program has written since. One that can't
be taken is kept next to the file, which is written again.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec
from msgspec import Raw, Struct

from ...workspace.base import (
    DEFINITION,
    LeaseHeld,
    NoWorkspace,
    Refused,
    SatchelError,
    UsageError,
    arguments,
    check_new,
    fresh_run_id,
    myself,
    slug,
    urls,
)
from ...workspace.formats import Definition, definition
from ...workspace.inspect import define, lease, look, look_beside, refuse_lost_definition
from ...workspace.journal import Message, blobs
from ...workspace.lifecycle import acquire
from ...workspace.state import FILES, ROOT, FileState, Moment, log_key
from ...workspace.store import DiskStore, Store, make_place, read_if_there, walk
from ...workspace.views import MessageRow, conversation
from ..agent import encode
from ..status import Method, reach, threaded

if TYPE_CHECKING:
    from .hold_opening import HoldOpening

T = TypeVar("T")

MESSAGES = "messages"
"""The log in messages.jsonl."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

_of_parents: list[HoldOpening | None] = []

_now_open: set[Held] = set()
"""What the end of the program releases, so that its files are complete."""

_LONGEST_WAIT = 3600.0
"""Seconds. A system can't wait for ever so long."""

_LAST_WAIT = 5.0
"""Seconds that the end of a program waits for a call in another thread."""

_TRY = 0.05
"""Seconds between two tries to take a workspace that another process has."""


class Row(Struct, frozen=True):
    """A row of a log. `seq` is its place: a later row has a higher one, and it never changes. `at`: when it was
    appended, UTC, ISO 8601. `value`: what was appended; of a conversation a dict with `role` and `content`."""

    seq: int
    at: str
    value: Any


class FileEntry(Struct, frozen=True):
    """A file in files/, by its path there. Each put gives it a higher `version`. `at`: when that was, UTC, ISO 8601.
    `bytes`: its length."""

    path: str
    version: int
    at: str
    bytes: int


class HeldFile(FileEntry, frozen=True):
    """A file in files/ with its content."""

    data: bytes

    @property
    def text(self) -> str:
        """The content as text. UnicodeDecodeError if it is none."""
        return self.data.decode()


def hold(
    url: str | Any,
    *,
    kind: str,
    create: bool = True,
    take_over: bool = False,
    wait: float = 0.0,
    idle: float = 5.0,
    adopt: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Held:
    """Be the one writer of the workspace at `url`, a folder or a URL, without an agent. A context manager, sync and
    async.

    `kind` says what is kept there, such as "conversation"; another program opens it as no other. Without `create`
    the workspace must be there. `wait`: seconds to wait for another process that has it. `take_over`: in a bucket,
    don't wait for the heartbeat of a process that has not closed it. After `idle` seconds without a call the workspace
    is released, so that another process can take it; the next call takes it again. `adopt`: go on although this may be
    a copy of a workspace that lives elsewhere.

    Raises UsageError for arguments that are not valid, Refused for a workspace of another kind or of an agent,
    LeaseHeld if another process has it, StorageFailed if the storage fails. Nothing is opened before the block is
    entered or the first method is called.
    """
    named("kind", kind)
    typed = arguments.target("url", url)
    waits, stays = arguments.seconds("wait", wait) or 0.0, arguments.seconds("idle", idle) or 0.0
    return Held(partial(_reach, typed, storage_options), kind, create, take_over, adopt, waits, stays)


class Held:
    """A workspace that this program holds; see `satchel.hold`. Safe for threads and tasks: one call after the other.

    Each method has a twin for an event loop with an `a` before its name. If its task is cancelled, the work goes on to
    its end: what it has written is on the disk, and a later call sees it. After an error of the storage the next call
    opens the workspace again.
    """

    def __init__(
        self,
        reach: Callable[[bool], Store],
        kind: str,
        create: bool,
        take_over: bool,
        adopt: bool,
        wait: float,
        idle: float,
    ):
        self._reach, self._kind, self._create = reach, kind, create
        self._take_over, self._adopt, self._wait, self._idle = take_over, adopt, wait, idle
        self._lock = threading.RLock()
        self._poked = threading.Event()
        self._opening: HoldOpening | None = None
        self._used = 0.0
        self._is_closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        where = self._opening.workspace.store.url if self._opening is not None else "nothing now"
        return f"<Held {self._kind}: {'closed' if self._is_closed else where}>"

    # Logs

    def append(self, rows: Sequence[Mapping[str, Any]], *, log: str = MESSAGES, key: str | None = None) -> int:
        """Add rows to the end of a log: durable when it returns, all of them or none. Returns the `seq` of the last
        one.

        Rows of `messages` are dicts with `role`, a text, and `content`, any JSON; those of other logs are any dicts of
        JSON. With the same `key` a repeated append to the log adds nothing, and returns what the first one did.
        NotSerializable for a value that is not JSON.
        """
        name = log_of(log)
        made = [_message(name, number, row) for number, row in enumerate(_rows(rows), 1)]
        if key is not None and not arguments.text("key", key):
            raise UsageError("key can't be empty", remedy="leave it out, or give each append a key of its own")
        key = key or ""
        with self._use() as opened:
            return opened.append(name, made, key)

    def rows(self, log: str = MESSAGES, after: int = 0, last: int | None = None) -> Sequence[Row]:
        """The rows of a log, oldest first: those with a `seq` above `after`, and at most the `last` ones. The cost
        depends on what is returned."""
        name = log_of(log)
        after, last = arguments.count("after", after, least=0) or 0, arguments.count("last", last, least=0)
        with self._use() as opened:
            return chosen(opened.newest_first(name), name, after, last, opened.is_edited(name))

    # Files

    def put(self, path: str, data: str | bytes, *, if_version: int | None = None) -> int:
        """Let a file in files/ have this content. Returns its new version. With `if_version` only if it has that
        version now (0: if there is none): else Conflicting, and nothing has changed."""
        path, content = path_of(path), _content(data)
        if_version = arguments.count("if_version", if_version, least=0)
        with self._use(FILES + path) as opened:
            opened.check_version(path, if_version)
            return opened.put(path, content)

    def get(self, path: str) -> HeldFile | None:
        """The file in files/ with its content; None if there is none."""
        path = path_of(path)
        with self._use(FILES + path) as opened:
            return held_file(opened.store, path, opened.moment.root.files.get(path))

    def list(self, prefix: str = "") -> Sequence[FileEntry]:
        """The files in files/ whose paths begin with `prefix`, by path."""
        arguments.text("prefix", prefix)
        with self._use() as opened:
            return entries(opened.moment, prefix)

    def remove(self, path: str, *, if_version: int | None = None) -> bool:
        """Remove a file from files/. Returns whether there was one. `if_version` as in `put`."""
        path = path_of(path)
        if_version = arguments.count("if_version", if_version, least=0)
        with self._use(FILES + path) as opened:
            opened.check_version(path, if_version)
            return opened.remove(path)

    # Holding it

    @contextmanager
    def exclusive(self, *, wait: float | None = None, idle: float | None = None) -> Iterator[None]:
        """Between the calls of the body comes no other call, of a thread of this program or of another program. `wait`
        and `idle` count from now on, in place of those that `satchel.hold` was given."""
        waits, stays = arguments.seconds("wait", wait), arguments.seconds("idle", idle)
        self._leave_to_parent()
        with self._lock:
            self._wait = self._wait if waits is None else waits
            if stays not in (None, self._idle):
                self._idle = stays
                self._poked.set()
            yield

    def release(self) -> None:
        """Leave the workspace to others now, not after `idle` seconds. The next call takes it again."""
        self._leave_to_parent()
        with self._lock:
            self._release()

    def close(self) -> None:
        """Release the workspace for good. A closed one can be closed again."""
        self._leave_to_parent()
        with self._lock:
            self._is_closed = True
            self._release()

    aappend = Method(threaded(append))
    arows = Method(threaded(rows))
    aput = Method(threaded(put))
    aget = Method(threaded(get))
    alist = Method(threaded(list))
    aremove = Method(threaded(remove))
    aclose = Method(threaded(close))

    def __enter__(self) -> Self:
        with self._use():
            return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    @contextmanager
    def _use(self, *paths: str) -> Iterator[HoldOpening]:
        """Have the workspace for the body, with what people have saved since the last look; of `paths` also what they
        have saved this moment."""
        self._leave_to_parent()
        with self._lock:
            if self._is_closed:
                raise UsageError("this workspace is closed", remedy="open it with satchel.hold again")
            opened = self._opening or self._opened()
            try:
                opened.take_edits(paths)
                yield opened
                opened.keep_up()
            except BaseException as error:
                if opened.has_failed or not isinstance(error, SatchelError):  # what it has begun must not count later
                    self._drop()
                raise
            finally:
                self._used = time.monotonic()

    def _end(self) -> None:
        if self._pid == os.getpid() and self._lock.acquire(timeout=_LAST_WAIT):
            try:
                self._release()
            finally:
                self._lock.release()

    def _leave_to_parent(self) -> None:
        """In a process that was forked from the one that has opened it: that one goes on."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock, self._poked = threading.RLock(), threading.Event()
            _of_parents.append(self._opening)  # its end would release the lock that both processes share
            self._opening = None

    def _opened(self) -> HoldOpening:
        from .hold_opening import HoldOpening  # slow, and who only reads opens nothing

        store, until = self._reach(self._create), time.monotonic() + self._wait
        while True:
            try:
                _make_sure(store, self._kind, self._create)
                opened = HoldOpening(store, self._kind, self._poked.set, take_over=self._take_over, adopt=self._adopt)
                break
            except LeaseHeld as error:
                if time.monotonic() >= until:
                    raise _held_by(store, error) from error
                time.sleep(_TRY)
        self._opening, self._take_over, self._adopt = opened, False, False
        _now_open.add(self)
        self._create = False  # if it is moved or removed, another one in its place is none of this program's
        try:
            threading.Thread(target=self._keep, args=(opened,), name="satchel-hold", daemon=True).start()
        except BaseException:
            self._drop()
            raise
        return opened

    def _keep(self, opened: HoldOpening) -> None:
        """In a thread: write readable files when they are due, and release what is idle."""
        while True:
            with self._lock:
                if self._opening is not opened:
                    return
                now = time.monotonic()
                try:
                    if now >= self._used + self._idle:
                        self._release()
                        return
                    if now >= opened.due:
                        opened.catch_up()
                except Exception:  # the next call opens it again, and says what is wrong
                    self._drop()
                    return
                pause = min(self._used + self._idle, opened.due) - now
                self._poked.clear()
            self._poked.wait(min(max(0.0, pause), _LONGEST_WAIT))

    def _release(self) -> None:
        opened, self._opening = self._opening, None
        _now_open.discard(self)
        self._poked.set()
        if opened is not None:
            opened.close()

    def _drop(self) -> None:
        """Like a crash: the next opening repairs what is left."""
        opened, self._opening = self._opening, None
        _now_open.discard(self)
        self._poked.set()
        if opened is not None:
            with suppress(Exception):
                opened.leave()


def _release_all() -> None:
    """At the end of the program. What it has not closed is released as after `idle` seconds."""
    for held in [*_now_open]:
        with suppress(Exception):
            held._end()


# Before the threads that write to a bucket are refused new work; `atexit` comes after that.
getattr(threading, "_register_atexit", atexit.register)(_release_all)


def _reach(typed: str, storage_options: Mapping[str, Any] | None, create: bool) -> Store:
    if create and not urls.is_remote(typed):
        make_place(urls.local(typed))
    elif not urls.is_remote(typed) and not os.path.isdir(urls.local(typed)):
        raise _none_there(typed)
    return reach(typed, storage_options)


def _held_by(store: Store, error: LeaseHeld) -> LeaseHeld:
    holder = lease.read(store)
    if holder is not None and not holder.is_left and (holder.host, holder.pid) == (socket.gethostname(), os.getpid()):
        remedy = "use that one in all parts of the program, or close it first"
        return LeaseHeld("this program has it open by another `satchel.hold`", path=store.url, remedy=remedy)
    remedy = "a program lets go `idle` seconds after its last call: wait for that with `wait=`"
    return LeaseHeld("another process has it", path=store.url, why=error.why, remedy=remedy)


def _none_there(url: str) -> NoWorkspace:
    return NoWorkspace("there is no workspace", path=url, remedy="leave out `create=False` to make one")


def _make_sure(store: Store, kind: str, create: bool) -> None:
    """Let there be a workspace, of this kind if it is new."""
    store.refresh()
    if read_if_there(store, DEFINITION) is not None:
        return
    if store.version(_REMOVING) is not None:  # a removal was interrupted, or another process is at it
        with lease.held(store):
            _clear(store)
    refuse_lost_definition(store)
    if not create:
        raise _none_there(store.url)
    name = slug(store.url.rpartition("/")[2]) or "held"
    text = definition.encode(Definition(fresh_run_id(name), "", kind=kind))
    with suppress(FileExistsError):  # another process was faster
        store.create(DEFINITION, text.encode())


def remove(url: str | Any, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Remove a workspace that programs hold, with all its files. Returns whether there was one.

    LeaseHeld if a process has it now. Refused for the run of an agent, which may be the only copy of its code. If it is
    interrupted, call it again.
    """
    typed = arguments.target("url", url)
    if not urls.is_remote(typed) and not os.path.isdir(urls.local(typed)):
        return False
    store = reach(typed, storage_options)
    store.refresh()
    if read_if_there(store, DEFINITION) is None:
        if store.version(_REMOVING) is None:
            return False
        with lease.held(store):
            _clear_all(store)
        return True
    if not define(store).kind:
        raise Refused("is the run of an agent", path=store.url, remedy="remove its folder yourself")
    with acquire.owned(store, look(store)):
        store.replace(_REMOVING, myself().encode())
        store.remove(DEFINITION)
        if store.abilities.lock:
            _clear_all(store)  # else it would take what the next program has made
    if not store.abilities.lock:
        _clear_all(store)
    return True


_REMOVING = ".satchel/removing"
"""Says that the rest of the folder is about to be removed."""


def _clear(store: Store) -> None:
    paths = [entry.path for entry in walk(store) if entry.path != _REMOVING]
    store.remove_many([*paths])
    store.remove(_REMOVING)
    store.tidy("")


def _clear_all(store: Store) -> None:
    _clear(store)
    if isinstance(store, DiskStore):
        shutil.rmtree(store.url, ignore_errors=True)  # what is no file


# Reading it without holding it


def rows_of(store: Store, log: str, after: int, last: int | None) -> list[Row]:
    """The rows of a log, for a reader. See `Held.rows`."""
    name = log_of(log)
    after, last = arguments.count("after", after, least=0) or 0, arguments.count("last", last, least=0)
    moment = look_beside(store).moment
    place = next((place for place in moment.row_logs if place.key == log_key("", name)), None)
    if place is None:
        return []
    there = conversation.read(store, place.path)
    data = conversation.of_file(place.log, there.data if there else b"")
    if data is None:
        rows = conversation.checked(place, conversation.recorded(store, moment)[place.key][-1])
    else:
        rows = conversation.decode(data)
    is_edited = conversation.NAME in moment.root.edits
    return chosen(iter(reversed(rows)), name, after, last, is_edited)


def entries_of(store: Store, prefix: str) -> list[FileEntry]:
    """The files in files/, for a reader. See `Held.list`."""
    return entries(look_beside(store).moment, arguments.text("prefix", prefix))


def file_of(store: Store, path: str) -> HeldFile | None:
    """A file in files/, for a reader. See `Held.get`."""
    path = path_of(path)
    return held_file(store, path, look_beside(store).moment.root.files.get(path))


def files_of(store: Store, prefix: str) -> list[HeldFile]:
    """The files in files/ whose paths begin with `prefix`, for a reader, with their content."""
    moment = look_beside(store).moment
    there = entries(moment, arguments.text("prefix", prefix))
    found = (held_file(store, each.path, moment.root.files[each.path]) for each in there)
    return [file for file in found if file is not None]


# Arguments and results


def _rows(rows: Any) -> Sequence[Any]:
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Sequence):
        raise UsageError(f"rows can't be of the type {type(rows).__name__}", remedy="give a list of dicts")
    return rows


def _message(log: str, number: int, row: Any) -> Message:
    what = f"row {number}"
    if not isinstance(row, Mapping):
        raise UsageError(f"{what} can't be of the type {type(row).__name__}", remedy="give a dict")
    if log:
        return Message(scope=ROOT, content=Raw(encode(dict(row), what)), log=log)
    if row.keys() != {"role", "content"}:
        raise UsageError(f"{what} has the keys {', '.join(map(repr, row))}", remedy="give `role` and `content`")
    role = arguments.text(f"the role of {what}", row["role"])
    return Message(scope=ROOT, role=role, content=Raw(encode(row["content"], f"the content of {what}")))


def _content(data: Any) -> bytes:
    if isinstance(data, str):
        return arguments.text("data", data).encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise UsageError(f"data can't be of the type {type(data).__name__}", remedy="give text or bytes")


def log_of(name: str) -> str:
    """The name of a log in the record: empty for the conversation."""
    return "" if named("log", name) == MESSAGES else name


def named(what: str, name: str) -> str:
    """A name of a log, or of a kind."""
    if not _NAME.fullmatch(arguments.text(what, name)):
        raise UsageError(
            f"{what} can't be {name!r}", remedy="give up to 63 lower-case letters, digits, `.`, `-` and `_`"
        )
    return name


def path_of(path: str) -> str:
    return check_new(FILES + arguments.text("path", path)).removeprefix(FILES)


def chosen(newest: Iterator[MessageRow], log: str, after: int, last: int | None, is_edited: bool) -> list[Row]:
    found = list[Row]()
    for row in newest:
        if last is not None and len(found) >= last:
            break
        if row.seq > after:
            content = msgspec.json.decode(row.content)
            found.append(Row(row.seq, row.at, content if log else {"role": row.role, "content": content}))
        elif not is_edited:
            break
    return found[::-1]


def entries(moment: Moment, prefix: str) -> list[FileEntry]:
    found = sorted((path, file) for path, file in moment.root.files.items() if path.startswith(prefix))
    return [FileEntry(path, file.version, file.at, file.content.bytes) for path, file in found]


def held_file(store: Store, path: str, file: FileState | None) -> HeldFile | None:
    if file is None:
        return None
    return HeldFile(path, file.version, file.at, file.content.bytes, blobs.fetch_file(store, file.content))
