"""A workspace in a folder of a local disk.

fsspec's local file system neither syncs nor creates exclusively, so this uses system calls.
"""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import quote

from ..base import LeaseHeld, UsageError, check_path, is_name, shown
from .contract import (
    DISK,
    READ_LIMIT,
    Abilities,
    AppendFile,
    Entry,
    Exchanged,
    Exposure,
    FileChanged,
    FileContent,
    Sync,
    Trace,
    Version,
)
from .syscalls import NOT_THERE, Permissions, Syscalls, access_in, failed, failing, invalid, locking, reading, user_here

TEMPORARY = ".satchel/tmp"

DISPLACED = ".satchel/displaced"

LOCK = ".satchel/lock"

_OURS = ".satchel/schemas/state.json"  # is only ever replaced, so no program has it open for writing

_LONGEST_NAME = 160


class DiskLog:
    """An `AppendFile` on an open file descriptor."""

    def __init__(self, syscalls: Syscalls, fd: int, path: str, full: str):
        self._os, self._fd, self._path, self._full = syscalls, fd, path, full

    def append(self, data: bytes) -> None:
        try:
            self._os.write(self._fd, data)
            self._os.sync_data(self._fd)
            if not self._os.is_at(self._fd, self._full):  # an opening replaces or removes the last log
                self._os.stat(os.path.dirname(self._full))  # or the whole workspace was moved or removed
                raise LeaseHeld(
                    "was replaced while this process was writing it",
                    path=self._path,
                    why="the lock was deleted or the folder exchanged, and another process may have the workspace",
                    remedy="see `satchel status`; nothing that was recorded is lost",
                )
        except OSError as error:
            raise failed("can't be appended to", self._path, error) from error

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):  # all that was acknowledged is durable already
                self._os.close(fd)


_numbers = itertools.count()


class DiskStore:
    """The `Store` of a local folder. The folder must exist."""

    def __init__(self, root: str | os.PathLike[str], syscalls: Syscalls | None = None):
        self._os = syscalls or Syscalls()
        self._root = self._os.resolve(os.fspath(root))
        self._access: Permissions | None = None
        self._folders: dict[str, bool] = {}  # folders that exist; whether their name is durable
        self._filled: Counter[str] = Counter()  # folders that a file is being written into
        self._filling = threading.Lock()  # of these

    @property
    def url(self) -> str:
        return self._root

    @property
    def abilities(self) -> Abilities:
        return DISK

    def exposure(self) -> Exposure:
        return of_folder(self._root)

    def refresh(self, folder: str = "") -> None:
        """Nothing is cached, because reading is cheap."""

    def fetch(self, paths: Iterable[str]) -> None: ...

    @property
    def pages(self) -> int:
        return 0

    def expect(self, path: str, data: bytes) -> None: ...

    # Reading

    def read(self, path: str, *, limit: int = READ_LIMIT) -> FileContent:
        full = self._inside(path)
        with reading(path):
            data, status = self._os.read(full, limit)
        if max(len(data), status.st_size) > limit:
            raise invalid(path, f"more than {limit:,} bytes", f"at most {limit:,}", "Move it away and look inside")
        return FileContent(data, version_of(status))

    def tail(self, path: str, size: int) -> bytes:
        full = self._inside(path)
        with reading(path):
            return self._os.read_end(full, size)

    def part(self, path: str, begin: int, size: int) -> bytes:
        full = self._inside(path)
        with reading(path):
            return self._os.read_part(full, begin, size)

    def grown(self, path: str, offset: int) -> bytes:
        """The bytes of a log from `offset` on, durable when this returns: another program may have written them and not
        synced them yet. FileNotFoundError if there is no such file."""
        full = self._inside(path)
        with reading(path):
            return self._os.read_from(full, offset)

    def version(self, path: str) -> Version | None:
        try:
            return version_of(self._os.stat(self._inside(path)))
        except OSError as error:
            if error.errno in NOT_THERE:
                return None
            raise failed("can't be inspected", path, error) from error

    def has_writer(self, path: str) -> bool | None:
        """A network file system may say of every file that it has a writer. It is not believed if it says so of our
        own."""
        found = self._os.has_writer(self._inside(path))
        return None if found and path != _OURS and self._os.has_writer(self._inside(_OURS)) else found

    def trace(self, path: str) -> Trace:
        try:
            status = self._os.stat(self._inside(path))
        except OSError:
            return Trace("", "")
        try:
            saved = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):  # a time outside the calendar
            saved = ""
        return Trace(user_here(status.st_uid), saved)

    def list(self, folder: str) -> Iterator[Entry]:
        for name, status in self._scan(folder).items():
            if not stat.S_ISDIR(status.st_mode):
                yield Entry(f"{folder}/{name}" if folder else name, status.st_size)

    def folders(self, folder: str) -> Iterator[str]:
        for name, status in self._scan(folder).items():
            if stat.S_ISDIR(status.st_mode):
                yield f"{folder}/{name}" if folder else name

    def files(
        self, folder: str = "", *, left: Callable[[str, int], object] = lambda path, mode: None
    ) -> Iterator[tuple[Entry, Version]]:
        """Every file in a folder and below, with its version: like `walk` and `version`, with one scan a folder. `left`
        is called with path and mode of what is no file or folder, or has a name that is not valid on every system."""
        for name, status in sorted(self._raw(folder).items()):
            path = f"{folder}/{name}" if folder else name
            if is_name(name) and stat.S_ISDIR(status.st_mode):
                yield from self.files(path, left=left)
            elif is_name(name) and stat.S_ISREG(status.st_mode):
                yield Entry(path, status.st_size), version_of(status)
            else:
                left(path, status.st_mode)

    def unusable(self, folder: str) -> Iterator[str]:
        full = os.path.dirname(self._inside(f"{folder}/x")) if folder else self._root
        with suppress(OSError):
            for name in sorted(self._os.scan(full)):
                if not is_name(name):
                    yield shown(os.fsencode(name).decode(errors="backslashreplace"))

    def _scan(self, folder: str) -> dict[str, os.stat_result]:
        """The facts of what is directly in a folder, by name. A name that can't be ours is ignored."""
        found = self._raw(folder)
        return {name: found[name] for name in sorted(found) if is_name(name)}

    def _raw(self, folder: str) -> dict[str, os.stat_result]:
        full = os.path.dirname(self._inside(f"{folder}/x")) if folder else self._root
        try:
            return self._os.scan(full)
        except OSError as error:
            if error.errno in NOT_THERE:
                return {}
            raise failed("can't be listed", folder or ".", error) from error

    # Writing

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        """Temporary file in the same file system, fsync, rename, fsync of the folder: each as far as `sync` asks."""
        target = self._inside(path)
        with failing("can't be written", path), self._folder_of(path, durable=sync == "all"):
            with self._temporary(data, sync, target) as temporary:
                if if_version is not None and self.version(path) != if_version:
                    raise FileChanged(path)
                version = version_of(self._os.stat(temporary))
                self._os.rename(temporary, target)
            if sync == "all":
                self._os.sync_folder(os.path.dirname(target))
        return version

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        target = self._inside(path)
        kept = f"{DISPLACED}/{os.getpid()}-{next(_numbers)}-{if_version}-{displaced_name(path)}"
        if self._is_below_a_file(path):
            raise FileChanged(path)
        with failing("can't be written", path), self._folder_of(path, durable=False):
            self._make_folder(DISPLACED, durable=False)
            with self._temporary(data, "data", target) as temporary:
                if self.version(path) != if_version:
                    raise FileChanged(path)
                version = version_of(self._os.stat(temporary))
                if if_version is None:
                    self._os.link(temporary, target)  # never replaces a file that has come meanwhile
                    self._os.unlink(temporary)
                    return Exchanged(version, None)
                aside = self._inside(kept)
                self._put_aside(temporary, aside)  # after a crash from here on, both are where the next opening looks
                try:
                    if not self._os.exchange(aside, target):
                        self._displace(aside, target)
                except FileNotFoundError as error:  # it was removed meanwhile
                    self._os.unlink(aside)
                    raise FileChanged(path) from error
        return Exchanged(version, kept)

    def _put_aside(self, temporary: str, aside: str) -> None:
        try:
            self._os.rename(temporary, aside)
        except FileNotFoundError:  # another process has tidied up
            self._folders.pop(DISPLACED, None)
            self._make_folder(DISPLACED, durable=False)
            self._os.rename(temporary, aside)

    def _displace(self, aside: str, target: str) -> None:
        """Exchange two files where the system has no call for it: a save between its calls is not seen."""
        old = f"{aside}~"
        self._os.link(target, old)
        self._os.rename(aside, target)
        self._os.rename(old, aside)

    def watch(self, folders: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        return self._os.watch([os.path.dirname(self._inside(f"{folder}/x".lstrip("/"))) for folder in folders], hint)

    def create(self, path: str, data: bytes) -> Version:
        """`link` gives the file its name, and not a rename, because a link never replaces."""
        target = self._inside(path)
        with failing("can't be written", path), self._folder_of(path, durable=True):
            with self._temporary(data, "all") as temporary:
                version = version_of(self._os.stat(temporary))
                self._os.link(temporary, target)
                self._os.unlink(temporary)
            self._os.sync_folder(os.path.dirname(target))
        return version

    def create_log(self, path: str, data: bytes) -> AppendFile:
        target = self._inside(path)
        with failing("can't be written", path), self._folder_of(path, durable=True):
            fd = self._open_new(target)
            log = DiskLog(self._os, fd, path, target)
            try:
                log.append(data)
                self._os.sync_folder(os.path.dirname(target))
            except BaseException:
                log.close()
                raise
        return log

    def append(self, path: str, data: bytes, *, durable: bool = False, if_version: Version | None = None) -> Version:
        target = self._inside(path)
        with failing("can't be appended to", path), self._folder_of(path, durable=durable):
            fd = self._open_append(target)
            try:
                before = self._os.status(fd)
                if if_version is not None and version_of(before) != if_version:
                    raise FileChanged(path)
                if data:
                    self._os.write(fd, data)
                if durable:
                    self._os.sync(fd)
                after = self._os.status(fd)
            finally:
                self._os.close(fd)
            if durable:
                self._os.sync_folder(os.path.dirname(target))
        if if_version is not None and after.st_size != before.st_size + len(data):
            raise FileChanged(path)
        return version_of(after)

    def rename(self, path: str, to: str) -> None:
        """First makes the new name durable, then removes the old one."""
        source, target = self._inside(path), self._inside(to)
        if self.version(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        with failing("can't be moved", path), self._folder_of(to, durable=True):
            self._os.rename(source, target)
            self._os.sync_folder(os.path.dirname(target))
            if os.path.dirname(path) != os.path.dirname(to):
                self._os.sync_folder(os.path.dirname(source))

    def settle(self, folder: str) -> None:
        full = os.path.dirname(self._inside(f"{folder}/x")) if folder else self._root
        with failing("can't be synced", folder or "."), suppress(FileNotFoundError, NotADirectoryError):
            self._os.sync_folder(full)

    def remove(self, path: str, *, if_version: Version | None = None) -> None:
        full = self._inside(path)
        if if_version is not None and self.version(path) not in (None, if_version):
            raise FileChanged(path)
        with failing("can't be removed", path), suppress(FileNotFoundError, NotADirectoryError):
            self._os.unlink(full)
        self._remove_empty(os.path.dirname(path))

    def remove_many(self, paths: Sequence[str]) -> None:
        for path in [check_path(each) for each in paths]:
            self.remove(path)

    def tidy(self, folder: str) -> None:
        for inner in [*self.folders(folder)]:
            self._remove_empty(inner)

    def _remove_empty(self, folder: str) -> None:
        """Remove a folder and those above it, up to the first that is not empty."""
        while folder:
            with self._filling:
                if any(f"{each}/".startswith(f"{folder}/") for each in self._filled):
                    break
                try:
                    self._os.rmdir(self._inside(folder))
                except OSError:
                    break  # not empty, or not there
                self._folders.pop(folder, None)
            folder = os.path.dirname(folder)

    @contextmanager
    def lock(self) -> Iterator[None]:
        from filelock import Timeout

        with locking(LOCK):
            self._make_folder(os.path.dirname(LOCK), durable=True)
            with suppress(FileExistsError):
                self._os.close(self._open_new(self._inside(LOCK)))
            path = self._inside(LOCK)
            lock, was = self._os.lock(path), self._os.stat(path).st_ino
            try:
                lock.__enter__()
            except Timeout as error:
                raise LeaseHeld("another process is running this workspace", path=self.url) from error
            try:
                is_there = self._os.stat(path).st_ino == was
            except FileNotFoundError:
                is_there = False
            if not is_there:  # the workspace was just removed, and this lock keeps no process out
                lock.__exit__(None, None, None)
                raise LeaseHeld("another process has just removed this workspace", path=self.url)
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def try_lock(self, path: str) -> None:
        with locking(path):
            self._os.try_lock(self._inside(path))

    @contextmanager
    def _temporary(self, data: bytes, sync: Sync, target: str = "") -> Iterator[str]:
        """A file with `data`, which the body renames or links. Removed if the body fails. One that will replace
        `target` has its mode, which a person may have set."""
        self._make_folder(TEMPORARY, durable=False)  # its content after a crash is useless anyway
        path, fd = self._open_temporary(target)
        try:
            try:
                self._os.write(fd, data)
                if sync != "no":
                    self._os.sync(fd)
            finally:
                self._os.close(fd)
            yield path
        except BaseException:
            with suppress(OSError):
                self._os.unlink(path)
            raise

    def _open_temporary(self, target: str) -> tuple[str, int]:
        mode = None
        if target:
            with suppress(OSError):
                there = self._os.stat(target)
                mode = stat.S_IMODE(there.st_mode) if stat.S_ISREG(there.st_mode) else None
        while True:
            path = f"{self._root}/{TEMPORARY}/{os.getpid()}-{next(_numbers)}"
            with suppress(FileExistsError):  # a process with this number, in another container
                return path, self._open_new(path, mode)

    def _open_append(self, full: str) -> int:
        while True:
            with suppress(FileNotFoundError):
                return self._os.open_append(full)
            with suppress(FileExistsError):  # another writer was first
                return self._open_new(full)

    def _open_new(self, full: str, mode: int | None = None) -> int:
        fd = self._os.open_new(full)
        access = self._given()
        try:
            self._os.give(fd, access.file if mode is None else mode, access.owner)
        except BaseException:
            self._os.close(fd)
            raise
        return fd

    def _given(self) -> Permissions:
        self._access = self._access or access_in(self._os.stat(self._root))
        return self._access

    # Folders, and the way out of them

    def _inside(self, path: str) -> str:
        """The absolute path, after a check that its folder is not a symbolic link out of the workspace."""
        check_path(path)
        self._check_folder(path.rpartition("/")[0])
        return f"{self._root}/{path}"

    def _check_folder(self, folder: str) -> None:
        """UsageError for one that leads out. The root is resolved, so only folders below it can be links. A person may
        put a link in place of a folder at any time, so nothing is remembered."""
        at = self._root
        for name in filter(None, folder.split("/")):
            at = f"{at}/{name}"
            if not self._os.is_link(at):
                continue
            resolved = self._os.resolve(f"{self._root}/{folder}")
            if resolved != self._root and not resolved.startswith(f"{self._root}/"):
                raise UsageError(
                    "points outside the workspace",
                    path=folder,
                    why=f"{folder} is a link to {resolved}",
                    remedy="replace the link by a folder",
                )
            return

    @contextmanager
    def _folder_of(self, path: str, *, durable: bool) -> Iterator[None]:
        """The folder of a file that the body writes. Until then no other thread removes it as empty."""
        folder = os.path.dirname(path)
        with self._filling:
            self._filled[folder] += 1
        try:
            self._make_folder(folder, durable=durable)
            yield
        finally:
            with self._filling:
                self._filled[folder] -= 1
                if not self._filled[folder]:
                    del self._filled[folder]

    def _make_folder(self, folder: str, *, durable: bool) -> None:
        """Make a folder and its parents. Another process may have made a folder and died before its name was durable,
        so the first durable use in this process syncs it; the folder of the workspace, too. A person may have removed
        one that this process has made."""
        known = self._folders.get(folder)
        if not folder:
            if durable and not known:
                settle_place(self._root, self._os, levels=1)
                self._folders[folder] = True
            return
        if known is not None and known >= durable and self._is_there(folder):
            return
        self._make_folder(os.path.dirname(folder), durable=durable)
        full = self._inside(folder)
        with suppress(FileExistsError):
            self._os.mkdir(full)
            access = self._given()
            self._os.give_folder(full, access.folder, access.owner)
        self._inside(f"{folder}/x")  # what was there already may be a link
        if durable:
            self._os.sync_folder(os.path.dirname(full))
        self._folders[folder] = durable

    def _is_below_a_file(self, path: str) -> bool:
        """Whether a person has saved a file in place of its folder, or of one above that."""
        folder = os.path.dirname(path)
        try:
            return bool(folder) and not stat.S_ISDIR(self._os.stat(self._inside(folder)).st_mode)
        except OSError as error:
            return error.errno == errno.ENOTDIR

    def _is_there(self, folder: str) -> bool:
        with suppress(OSError):
            return stat.S_ISDIR(self._os.stat(self._inside(folder)).st_mode)
        return False


def settle_place(folder: str, calls: Syscalls | None = None, *, levels: int = 100) -> None:
    """Make the name of a folder durable in the folder above it, and so on for so many `levels`, before anything in it
    is told: a process that was killed may have made them a moment ago, and a power failure would take the whole run.
    Ends where the file system does. A folder that this user may not read is another user's."""
    calls = calls or Syscalls()
    device = calls.stat(folder).st_dev
    for _ in range(levels):
        above = os.path.dirname(folder)
        if above == folder or calls.stat(above).st_dev != device:
            return
        with suppress(PermissionError):
            calls.sync_folder(above)
        folder = above


def displaced_name(path: str) -> str:
    """The part of a displaced file's name that represents its path: the path itself, unless it is too long for a file
    name."""
    import hashlib  # slow to import

    name = quote(path, safe="")
    return name if len(name) <= _LONGEST_NAME else hashlib.sha256(path.encode()).hexdigest()


def version_of(status: os.stat_result) -> Version:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def link(source: DiskStore, to: DiskStore, path: str) -> bool:
    """Give a file that never changes the same name in another store. False if the file system can't do it. The name is
    durable once its folder is settled."""
    existing, new = source._inside(path), to._inside(path)
    to._make_folder(os.path.dirname(path), durable=False)
    try:
        to._os.link(existing, new)
    except FileExistsError:
        return True
    except OSError:  # another file system, or one without links
        return False
    return True


def of_folder(folder: str) -> Exposure:
    """Who can look into a folder, by the mode bits of the folder and of the folders above it."""
    mode = os.stat(folder).st_mode
    above, entered = os.path.realpath(folder), True
    while (parent := os.path.dirname(above)) != above:
        above = parent
        entered &= bool(os.stat(above).st_mode & stat.S_IXOTH)
    return Exposure(public=entered and bool(mode & stat.S_IRWXO), group=bool(mode & stat.S_IRWXG))


def make_place(folder: str, made: list[str] | None = None, calls: Syscalls | None = None) -> None:
    """Make a folder that may be missing, and those above it, with durable names. UsageError if it can't be one. `made`
    gets the new ones."""
    calls = calls or Syscalls()
    _make(calls, os.path.abspath(folder), [] if made is None else made)
    settle_place(calls.resolve(folder), calls)


def _make(calls: Syscalls, folder: str, made: list[str]) -> None:
    with suppress(OSError):
        if stat.S_ISDIR(calls.stat(calls.resolve(folder)).st_mode):
            return
    with suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISDIR(calls.stat(folder).st_mode):
            return  # another process has made it meanwhile
        raise UsageError("is a file", path=folder, remedy="name a folder, which need not exist yet")
    _make(calls, os.path.dirname(folder), made)
    try:
        calls.mkdir_shared(folder)
    except FileExistsError:
        return  # another process was faster
    except OSError as error:
        raise UsageError(
            "can't be made",
            path=folder,
            why=error.strerror or str(error),
            remedy=f"check that you may write in {shlex.quote(os.path.dirname(folder))}",
        ) from error
    made.append(folder)
