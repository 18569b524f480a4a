"""Copy the files of one place to another, one by one, and prove that they are equal.

Everything is copied except what belongs to a process or a machine: lock, lease, temporary files, logs, compiled code.
The caller holds the source against every process that runs it. People may still save files there: a file that has
changed is copied again, until two looks are equal. A laptop may sleep between two changes, and another process may
finish the transfer meanwhile, or bring the run back: so earlier facts are checked again before each change (`Still`).
Changes in the moment between a look and a change are not excluded.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from .. import journal
from ..base import DEFINITION, KEY_BYTES, NAME_BYTES, InvalidFile, LeaseHeld, StorageFailed, UsageError, is_name, shown
from ..inspect import goes_along, transfer_file
from ..lifecycle import clock
from ..store import DiskStore, Entry, Store, Version, read_if_there, walk
from ..views import schema_files

READ_LIMIT = 1 << 36
"""A file is held in memory as a whole, as everywhere; but no file that a run can have made is refused for its size."""

_LOOKS = 5
_AT_ONCE = 8  # requests at the same time over a network

_FRESH = 5.0  # seconds
_SHOWN = 5
_ODD_NAME = "its name is not valid on every system"
_AGAIN = "run the same command again: it does not copy again what is there already"
Phase = Literal["copying", "verifying", "clearing"]
Tell = Callable[[Phase, int, int], None]
"""The progress: bytes done (in `clearing`: files), and the total."""

T = TypeVar("T")
R = TypeVar("R")


class TransferredFile(NamedTuple):
    """A file that is now at both places."""

    path: str
    size: int
    sha256: str
    md5: str
    version: Version  # at the source
    was_there: bool  # an earlier attempt had brought it, and it was read back now
    data: bytes = b""  # of workspace.yaml, which goes last


def transfer(source: Store, to: Store, tell: Tell) -> dict[str, TransferredFile]:
    """Copy everything but workspace.yaml, which makes a workspace of the rest. Returns what is there, proven equal to
    the source. Durable when it returns."""
    sent: dict[str, TransferredFile] = {}
    for _ in range(_LOOKS):
        source.refresh()
        entries = [entry for entry in carried(source, to) if entry.path != DEFINITION]
        due = [entry for entry in entries if not _is_current(source, sent.get(entry.path), entry)]
        for path in sent.keys() - {entry.path for entry in entries}:
            del sent[path]
        if not due:
            break
        _copy(source, to, due, sent, tell)
    else:
        raise UsageError(
            "files of the workspace keep changing",
            path=source.url,
            why=f"{due[0].path} is the last that changed",
            remedy="find the program that writes there, stop it, and run the same command again",
        )
    _refuse_arrived(to)
    for entry in walk(to):  # files of an earlier attempt that the source no longer has
        if goes_along(entry.path) and entry.path not in sent and entry.path != DEFINITION:
            to.remove(entry.path)
    _verify(to, sent, tell)
    settle(to, sent)
    return sent


def _refuse_arrived(to: Store) -> None:
    """Another process that has finished the move may have cleared the source, and what is read there now is not the
    run."""
    to.refresh()
    if to.version(DEFINITION) is not None:
        raise finished(to, f"there is a {DEFINITION} now")


def _is_current(source: Store, sent: TransferredFile | None, entry: Entry) -> bool:
    return sent is not None and source.version(entry.path) == sent.version


def _copy(source: Store, to: Store, due: list[Entry], sent: dict[str, TransferredFile], tell: Tell) -> None:
    """The journal only after all others: what is half there has no end of its history."""
    total, done = sum(entry.size for entry in due), 0
    _refuse_arrived(to)
    still = Still(partial(_refuse_arrived, to))
    tell("copying", 0, total)
    for is_journal in (False, True):
        part = [entry for entry in due if entry.path.startswith(f"{journal.FOLDER}/") == is_journal]
        for entry, one in each_of(lambda entry: _bring(source, to, entry, still), part, source, to):
            done += entry.size
            tell("copying", done, total)
            if one is not None:
                sent[entry.path] = one


def _bring(source: Store, to: Store, entry: Entry, still: Still) -> TransferredFile | None:
    """None if the file has disappeared meanwhile. LeaseHeld if another process has moved the run and cleared it: then
    the file is the empty one that holds a name of the journal."""
    path = entry.path
    if (found := read_if_there(source, path, limit=READ_LIMIT)) is None:
        return None
    data, version = found
    if entry.size and not data and may_be_stub(source, path):
        raise finished(to, f"{path} has been cleared at {source.url}")
    sha, md5 = hashes(data)
    sent = TransferredFile(path, len(data), sha, md5, version, True)
    if proves(to, sent):
        return sent
    still.check()
    to.replace(path, data, sync="data")
    keep_attributes(source, to, path)
    return sent._replace(was_there=False)


def _verify(to: Store, sent: dict[str, TransferredFile], tell: Tell) -> None:
    unproven = [each for each in sent.values() if not each.was_there]
    total, done = sum(each.size for each in unproven), 0
    tell("verifying", 0, total)
    for each, is_there in each_of(lambda each: proves(to, each), unproven, to):
        if not is_there:
            raise differs(to, each.path)
        done += each.size
        tell("verifying", done, total)
    found = {entry.path for entry in carried(to)} - {DEFINITION}
    if wrong := sorted(found ^ sent.keys()):
        raise differs(to, wrong[0])


def hashes(data: bytes) -> tuple[str, str]:
    return hashlib.sha256(data).hexdigest(), hashlib.md5(data, usedforsecurity=False).hexdigest()


def proves(store: Store, sent: TransferredFile) -> bool:
    """Whether the store holds these bytes. Buckets that report the MD5 of an object are believed; otherwise the bytes
    are read back."""
    version = store.version(sent.path)
    if version is None:
        return False
    if store.abilities.remote:
        if version.strip('"') == sent.md5:
            return True
        store.expect(sent.path, b"")  # its cache holds what was written, which proves nothing
    found = read_if_there(store, sent.path, limit=READ_LIMIT)
    return found is not None and hashes(found.data)[0] == sent.sha256


def differs(to: Store, path: str) -> StorageFailed:
    return StorageFailed(
        f"differs at {to.url} from the file here",
        path=path,
        why="the storage has lost or changed it, or another program writes there",
        remedy=_AGAIN,
    )


def settle(to: Store, sent: Iterable[str]) -> None:
    """Make every name durable; each file's content already is."""
    folders = {""}
    for path in sent:
        while path := path.rpartition("/")[0]:
            folders.add(path)
    for folder in sorted(folders):
        to.settle(folder)


def keep_attributes(source: Store, to: Store, path: str) -> None:
    """From disk to disk: permissions, and when it was saved (`expected_until: 45m` counts from then)."""
    if isinstance(source, DiskStore) and isinstance(to, DiskStore):
        with suppress(OSError):  # a file system that has no such thing
            status = os.lstat(f"{source.url}/{path}")
            os.chmod(f"{to.url}/{path}", status.st_mode & 0o777)
            os.utime(f"{to.url}/{path}", ns=(status.st_atime_ns, status.st_mtime_ns))


def each_of(do: Callable[[T], R], what: list[T], *stores: Store) -> Iterator[tuple[T, R]]:
    """Each with its result; several at once where every call is a request."""
    if not any(store.abilities.remote for store in stores):
        yield from ((each, do(each)) for each in what)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            yield from zip(what, pool.map(do, what), strict=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def scratch_copy(source: Store, to: Store) -> None:
    """Copy a run that may be active, to try something over it. Not proven equal and not durable. Files of people go
    first and the journal after them, so that no file shows more than the journal says; then what the journal needs.
    What is not a plain file is no part of the run, but symbolic links may lead to its code: they lead there from the
    copy, too."""
    entries = [entry.path for entry in walk(source) if goes_along(entry.path)]
    order = ("checkpoints/", f"{journal.FOLDER}/", ".satchel/")
    for path in sorted(entries, key=lambda path: next((n for n, at in enumerate(order, 1) if path.startswith(at)), 0)):
        with suppress(FileNotFoundError, InvalidFile):  # the run goes on
            to.replace(path, source.read(path, limit=READ_LIMIT).data, sync="no")
    if isinstance(source, DiskStore) and isinstance(to, DiskStore):
        _link(source.url, to.url)


def _link(source: str, to: str) -> None:
    """Make the symbolic links of a folder in its copy. Those that lead to a place in it lead to the same place in the
    copy."""
    source = os.path.realpath(source)
    for folder, folders, files in os.walk(source):
        for path in [path for name in (*folders, *files) if os.path.islink(path := os.path.join(folder, name))]:
            target, there = os.path.realpath(path), os.path.join(to, os.path.relpath(path, source))
            if target == source or target.startswith(os.path.join(source, "")):
                target = os.path.normpath(os.path.join(to, os.path.relpath(target, source)))
            os.makedirs(os.path.dirname(there), exist_ok=True)
            with suppress(FileExistsError):
                os.symlink(target, there)


class Still:
    """`look` raises if it no longer holds. It held when this was made."""

    def __init__(self, look: Callable[[], None]):
        self._look, self._seen = look, clock()

    def check(self) -> None:
        now = clock()
        if now - self._seen >= _FRESH:
            self._look()
            self._seen = now


def finished(store: Store, why: str) -> LeaseHeld:
    return LeaseHeld(
        "another process has continued this transfer",
        path=store.url,
        why=why,
        remedy="`satchel status` shows where the run is now",
    )


def may_be_stub(store: Store, path: str) -> bool:
    """Where there is no lock, names of the journal stay taken by empty objects: a process that was frozen before the
    move, and continues here, finds its next name taken and stops."""
    return not store.abilities.lock and path.startswith(f"{journal.FOLDER}/")


def carried(store: Store, to: Store | None = None) -> list[Entry]:
    """The transferred files in their order: the journal after the other files, workspace.yaml last, so that a half copy
    is not a workspace. A tombstone stays where it is, and so do the copies of schemas if `to` is no disk."""
    staying = transfer_file.MOVED if transfer_file.read_tombstone(store) else None
    going = (entry for entry in walk(store) if goes_along(entry.path) and entry.path != staying)
    if to is not None and to.abilities.remote:
        going = (entry for entry in going if not schema_files.is_copy(entry.path))
    return sorted(going, key=lambda entry: _rank(entry.path))


def _rank(path: str) -> tuple[int, str]:
    return (2 if path == DEFINITION else 1 if path.startswith(f"{journal.FOLDER}/") else 0), path


def digest(hashes: Iterable[tuple[str, str]]) -> str:
    """The SHA-256 of the list of files, in the form of `sha256sum`: one number to compare two places by."""
    lines = "".join(f"{sha}  {path}\n" for path, sha in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


class TransferFault(NamedTuple):
    """A file that can't be transferred."""

    path: str
    why: str


def refuse_faults(store: Store, to: Store, *, stays: Callable[[str], bool] = lambda path: False) -> None:
    """UsageError if the other place can't hold a file of the workspace that does not stay. Checked before anything is
    copied."""
    going = [entry.path for entry in carried(store, to) if not stays(entry.path)]
    faults = [*(fault for fault in unlisted(store) if not stays(fault.path)), *_unfit(going, to)]
    if not faults:
        return
    first, *others = faults
    more = f"; {len(others)} more: {', '.join(shown(fault.path) for fault in others[:_SHOWN])}" if others else ""
    raise UsageError(
        "can't be transferred",
        path=shown(first.path),
        why=f"{first.why}{more}",
        remedy="put the file itself there under a plain name, or move it out of the workspace",
    )


def unlisted(store: Store) -> list[TransferFault]:
    """Everything of a place that `walk` doesn't show: not a file or folder, or with a name that is not valid
    everywhere."""
    if not isinstance(store, DiskStore):
        return [*_of_other(store, "")]
    found: list[TransferFault] = []

    def leave(path: str, mode: int) -> None:
        if not goes_along(f"{path}/x" if stat.S_ISDIR(mode) else path):
            return
        if stat.S_ISLNK(mode):
            found.append(TransferFault(path, "a symbolic link, and its target is not part of the workspace"))
        elif not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            found.append(TransferFault(path, "a device, a pipe or a socket"))
        else:
            found.append(TransferFault(path, _ODD_NAME))

    deque(store.files(left=leave), maxlen=0)
    return found


def _of_other(store: Store, folder: str) -> Iterator[TransferFault]:
    for name in store.unusable(folder):
        if goes_along(path := f"{folder}/{name}" if folder else name):
            yield TransferFault(path, "neither file nor folder" if is_name(name) else _ODD_NAME)
    for inner in store.folders(folder):
        yield from _of_other(store, inner)


def _unfit(paths: list[str], to: Store) -> Iterator[TransferFault]:
    """The visible files that the other place can't hold."""
    if isinstance(to, DiskStore):
        folders = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
        for path in paths:
            if path in folders:
                yield TransferFault(path, "a file and a folder have this name, and a disk can't hold both")
            elif any(len(os.fsencode(name)) > NAME_BYTES for name in path.split("/")):
                yield TransferFault(path, f"a name of more than {NAME_BYTES} bytes, which a disk can't have")
    elif to.abilities.remote:
        room = KEY_BYTES - len(to.url.encode())
        for path in paths:
            if len(os.fsencode(path)) > room:
                yield TransferFault(path, f"a path of more than {room} bytes, which is too long there")
