"""A file system in memory behind the disk store's calls, which knows what of it is durable.

It keeps the two states that a real one has: what every process sees, and what a power failure can't take. Every call
that changes something is logged with the state it left, so that any moment of a recording can be crashed at (legal.py).
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import NamedTuple

from satchel.workspace.store import Syscalls

ROOT = "/w"
TOP = 1
"""The inode of the folder above ROOT: a power failure may take the name of a workspace, too."""


class File(NamedTuple):
    data: bytes
    synced: int  # so many bytes at its beginning are durable; files here only grow
    writes: tuple[int, ...]  # lengths at which the writes since then began
    mtime: int


class Change(NamedTuple):
    """One atomic change of names in a folder: each name now means that inode, or nothing."""

    call: int  # its number, counted over all recordings of one history
    names: tuple[tuple[str, int | None], ...]


class Folder(NamedTuple):
    entries: dict[str, int]  # never changed in place
    durable: dict[str, int]
    pending: tuple[Change, ...]


Nodes = dict[int, File | Folder]
"""Every inode there ever was, by number: a lost removal brings one back."""


class Call(NamedTuple):
    name: str
    path: str = ""
    other: str = ""
    data: bytes = b""
    node: int = 0  # the inode written to
    fact: object = None

    def __str__(self) -> str:
        if self.name == "acknowledge":
            return f"-- acknowledged: {self.fact}"
        size = f" {len(self.data)} bytes" if self.name == "write" else ""
        return f"{self.name} {self.path}{f' -> {self.other}' if self.other else ''}{size}"


class Step(NamedTuple):
    """A call and the state it left."""

    call: Call
    nodes: Nodes


def empty() -> Nodes:
    return planted({})


def planted(files: Mapping[str, bytes], folders: tuple[str, ...] = (), *, is_new: bool = False) -> Nodes:
    """A state in which these files, and nothing else, lie durably. Paths are relative to ROOT. `is_new`: the folder
    itself was made a moment ago, so its name is not durable."""
    root = ROOT[1:]
    nodes = placed({f"{root}/{path}": data for path, data in files.items()}, (root, *(f"{root}/{f}" for f in folders)))
    if is_new:
        above = nodes[TOP]
        assert isinstance(above, Folder)
        nodes[TOP] = Folder(above.entries, {}, (Change(-1, (*above.entries.items(),)),))
    return nodes


def placed(files: Mapping[str, bytes], folders: tuple[str, ...] = ()) -> Nodes:
    """The same in several places: paths are those from the root of the file system."""
    nodes: Nodes = {}
    trees: dict[str, dict[str, int]] = {"": {}}
    number = TOP

    def folder(path: str) -> dict[str, int]:
        nonlocal number
        if path not in trees:
            above, _, name = path.rpartition("/")
            entries = folder(above)
            number += 1
            entries[name] = inodes[path] = number
            trees[path] = {}
        return trees[path]

    inodes = {"": TOP}
    for path in folders:
        folder(path)
    for path, data in files.items():
        above, _, name = path.rpartition("/")
        entries = folder(above)
        number += 1
        entries[name] = number
        nodes[number] = File(data, len(data), (), number)
    for path, entries in trees.items():
        nodes[inodes[path]] = Folder(entries, entries, ())
    return nodes


class Memory(Syscalls):
    """The calls of the disk store over `nodes`. Only `sync*` make anything durable, and only what POSIX says."""

    def __init__(self, nodes: Nodes | None = None, first: int = 0):
        """`first` is the number of the first call: what a kill left undone was asked for by earlier ones."""
        self.nodes = dict(nodes or empty())
        self.first = first
        self.log: list[Step] = []
        self._fds: dict[int, tuple[int, str]] = {}
        self._next_fd = 3
        self._next_node = max(self.nodes) + 1
        self._clock = max((node.mtime for node in self.nodes.values() if isinstance(node, File)), default=0)

    def acknowledge(self, fact: object) -> None:
        """Somebody outside now relies on `fact`."""
        self._done(Call("acknowledge", fact=fact))

    # Files

    def open_new(self, path: str) -> int:
        folder, name = self._place(path)
        if name in self._folder(folder).entries:
            raise _error(errno.EEXIST, path)
        return self._create(path, folder, name, "open_new")

    def open_append(self, path: str) -> int:
        folder, name = self._place(path)
        number = self._folder(folder).entries.get(name)
        if number is None:
            raise _error(errno.ENOENT, path)
        if isinstance(self.nodes[number], Folder):
            raise _error(errno.EISDIR, path)
        return self._opened(number, path, "open_append")

    def give(self, fd: int, mode: int, owner: tuple[int, int] | None) -> None:
        """There is one user here."""

    def give_folder(self, path: str, mode: int, owner: tuple[int, int] | None) -> None: ...

    def write(self, fd: int, data: bytes) -> None:
        number, path = self._open_file(fd)
        file = self._file(number)
        self._clock += 1
        self.nodes[number] = File(file.data + data, file.synced, (*file.writes, len(file.data)), self._clock)
        self._done(Call("write", path, data=data, node=number))

    def sync_data(self, fd: int) -> None:
        self._sync(fd, "sync_data")

    def sync(self, fd: int) -> None:
        self._sync(fd, "sync")

    def status(self, fd: int) -> os.stat_result:
        return self._status(self._open_file(fd)[0])

    def is_at(self, fd: int, path: str) -> bool:
        with suppress(OSError):
            return self._number(path) == self._open_file(fd)[0]
        return False

    def close(self, fd: int) -> None:
        _, path = self._open_file(fd)
        del self._fds[fd]
        self._done(Call("close", path))

    # Names

    def sync_folder(self, path: str) -> None:
        """Of a file, as of a folder, it makes durable what is in it."""
        number = self._number(path)
        node = self.nodes[number]
        if isinstance(node, Folder):
            self.nodes[number] = Folder(node.entries, node.entries, ())
        else:
            self.nodes[number] = File(node.data, len(node.data), (), node.mtime)
        self._done(Call("sync_folder", path))

    def rename(self, source: str, target: str) -> None:
        (from_folder, from_name), (to_folder, to_name) = self._place(source), self._place(target)
        number = self._number(source)
        if target.startswith(f"{source}/"):
            raise _error(errno.EINVAL, target)  # a folder into itself
        if source.startswith(f"{target}/"):
            raise _error(errno.ENOTEMPTY, target)  # over a folder around itself
        there = self._folder(to_folder).entries.get(to_name)
        if there == number:
            return  # two names of one file: POSIX says that nothing happens
        if there is not None:
            replaced, moved = self.nodes[there], self.nodes[number]
            if isinstance(moved, Folder) and isinstance(replaced, File):
                raise _error(errno.ENOTDIR, target)
            if isinstance(moved, File) and isinstance(replaced, Folder):
                raise _error(errno.EISDIR, target)
            if isinstance(replaced, Folder) and replaced.entries:
                raise _error(errno.ENOTEMPTY, target)
        if from_folder == to_folder:
            self._change(to_folder, (to_name, number), (from_name, None))
        else:
            self._change(to_folder, (to_name, number))
            self._change(from_folder, (from_name, None))
        self._done(Call("rename", source, target, node=number))

    def exchange(self, one: str, other: str) -> bool:
        (one_folder, one_name), (other_folder, other_name) = self._place(one), self._place(other)
        first, second = self._number(one), self._number(other)
        if one.startswith(f"{other}/") or other.startswith(f"{one}/"):
            return False  # EINVAL
        if first == second:
            return True
        if one_folder == other_folder:
            self._change(one_folder, (one_name, second), (other_name, first))
        else:
            self._change(other_folder, (other_name, first))
            self._change(one_folder, (one_name, second))
        self._done(Call("exchange", one, other, node=first))
        return True

    def watch(self, paths: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        return nullcontext()

    def link(self, source: str, target: str) -> None:
        number = self._number(source)
        folder, name = self._place(target)
        if name in self._folder(folder).entries:
            raise _error(errno.EEXIST, target)
        if isinstance(self.nodes[number], Folder):
            raise _error(errno.EPERM, source)
        self._change(folder, (name, number))
        self._done(Call("link", source, target, node=number))

    def unlink(self, path: str) -> None:
        folder, name = self._place(path)
        if isinstance(self.nodes[self._number(path)], Folder):
            raise _error(errno.EISDIR, path)
        self._change(folder, (name, None))
        self._done(Call("unlink", path))

    def mkdir_shared(self, path: str) -> None:
        self.mkdir(path)

    def mkdir(self, path: str) -> None:
        folder, name = self._place(path)
        if name in self._folder(folder).entries:
            raise _error(errno.EEXIST, path)
        number = self._add(Folder({}, {}, ()))
        self._change(folder, (name, number))
        self._done(Call("mkdir", path, node=number))

    def rmdir(self, path: str) -> None:
        folder, name = self._place(path)
        if self._folder(self._number(path), path).entries:
            raise _error(errno.ENOTEMPTY, path)
        self._change(folder, (name, None))
        self._done(Call("rmdir", path))

    # Looking

    def read(self, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        number = self._number(path)
        if isinstance(self.nodes[number], Folder):
            raise _error(errno.EISDIR, path)
        return self._file(number).data[: limit + 1], self._status(number)

    def read_end(self, path: str, size: int) -> bytes:
        data, status = self.read(path, sys.maxsize - 1)
        return data[max(0, status.st_size - size) :]

    def read_part(self, path: str, begin: int, size: int) -> bytes:
        return self.read(path, sys.maxsize - 1)[0][begin : begin + size]

    def read_from(self, path: str, offset: int) -> bytes:
        fd = self.open_append(path)
        try:
            self.sync_data(fd)
        finally:
            self.close(fd)
        return self._file(self._number(path)).data[offset:]

    def stat(self, path: str) -> os.stat_result:
        return self._status(self._number(path))

    def has_writer(self, path: str) -> bool | None:
        """All that is open here is open for writing."""
        try:
            number = self._number(path)
        except OSError:
            return None
        return number in {open_one for open_one, _ in self._fds.values()}

    def scan(self, path: str) -> dict[str, os.stat_result]:
        entries = self._folder(self._number(path), path).entries.items()
        return {name: self._status(number) for name, number in entries}

    def is_link(self, path: str) -> bool:
        return False

    def resolve(self, path: str) -> str:
        return os.path.normpath(path)

    @contextmanager
    def _locked(self, path: str) -> Iterator[object]:
        yield None

    def lock(self, path: str) -> AbstractContextManager[object]:
        """There is one process here at a time."""
        return self._locked(path)

    def try_lock(self, path: str) -> None:
        self._file(self._number(path))

    # What several of them do

    def _done(self, call: Call) -> None:
        self.log.append(Step(call, dict(self.nodes)))

    def _number(self, path: str) -> int:
        number, nodes = TOP, self.nodes
        for part in _parts(path):  # most of all the time goes by here
            node = nodes[number]
            if type(node) is not Folder:
                raise _error(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                raise _error(errno.ENOENT, path)
            number = found
        return number

    def _place(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        number = self._number(above)
        self._folder(number, path)
        return number, name

    def _folder(self, number: int, path: str = "") -> Folder:
        node = self.nodes[number]
        if not isinstance(node, Folder):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, number: int) -> File:
        node = self.nodes[number]
        assert isinstance(node, File)
        return node

    def _add(self, node: File | Folder) -> int:
        number = self._next_node
        self._next_node += 1
        self.nodes[number] = node
        return number

    def _change(self, number: int, *names: tuple[str, int | None]) -> None:
        folder = self._folder(number)
        entries = dict(folder.entries)
        apply(entries, names)
        self.nodes[number] = Folder(
            entries, folder.durable, (*folder.pending, Change(self.first + len(self.log), names))
        )

    def _create(self, path: str, folder: int, name: str, call: str) -> int:
        self._clock += 1
        number = self._add(File(b"", 0, (), self._clock))
        self._change(folder, (name, number))
        return self._opened(number, path, call)

    def _opened(self, number: int, path: str, call: str) -> int:
        fd = self._next_fd
        self._next_fd += 1
        self._fds[fd] = number, path
        self._done(Call(call, path, node=number))
        return fd

    def _open_file(self, fd: int) -> tuple[int, str]:
        if fd not in self._fds:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fds[fd]

    def _sync(self, fd: int, call: str) -> None:
        number, path = self._open_file(fd)
        file = self._file(number)
        self.nodes[number] = File(file.data, len(file.data), (), file.mtime)
        self._done(Call(call, path, node=number))

    def _status(self, number: int) -> os.stat_result:
        node = self.nodes[number]
        if isinstance(node, Folder):
            return os.stat_result((stat.S_IFDIR | 0o755, number, 1, 2, 0, 0, 0, 0, 0, 0), {"st_mtime_ns": 0})
        return os.stat_result(
            (stat.S_IFREG | 0o644, number, 1, 1, 0, 0, len(node.data), 0, 0, 0), {"st_mtime_ns": node.mtime}
        )


def apply(entries: dict[str, int], names: tuple[tuple[str, int | None], ...]) -> None:
    for name, number in names:
        if number is None:
            entries.pop(name, None)
        else:
            entries[name] = number


def files(nodes: Nodes, root: str = ROOT) -> dict[str, bytes]:
    """What every process sees: the files by path relative to `root`. A folder without files is there as `PATH/`.
    Nothing if `root` is not there."""
    found: dict[str, bytes] = {}
    number: int | None = TOP
    for part in _parts(root):
        folder = nodes[number] if number is not None else None
        number = folder.entries.get(part) if isinstance(folder, Folder) else None
    if number is not None:
        _collect(nodes, number, "", found)
    return found


def _collect(nodes: Nodes, number: int, path: str, found: dict[str, bytes]) -> None:
    node = nodes[number]
    if isinstance(node, File):
        found[path] = node.data
        return
    for name, child in node.entries.items():
        _collect(nodes, child, f"{path}/{name}" if path else name, found)
    if not node.entries and path:
        found[f"{path}/"] = b""


@lru_cache(4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
