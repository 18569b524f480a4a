"""What the processes of a run have printed, by pages and line by line: `.satchel/run.log`, after what it had before it
was started again. Of a run at a URL the log of this machine, or the one that was uploaded.

A place is an offset in both together. It is another one once the log was started again, which happens rarely.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from ...workspace import journal
from ...workspace.base import arguments
from ...workspace.base import lines as lines_of
from ...workspace.inspect import define, lease, look_beside
from ...workspace.secrets import Redactor, redactor_of
from ...workspace.state import OVER
from ...workspace.store import DiskStore, Entry, Store, Version
from ..supervision import child
from .place import Place, at_once

PAGE = 400
"""Lines on one page."""

PAGE_BYTES = 128 << 10
"""Bytes of one page. A longer line is cut there."""

_LOOK = 0.2
_KNOWN = 4096
"""Bytes before a place by which it is found again once the log was started again."""

_QUIET = 5
"""Looks without a new line after which the log of a run that is over has its last one: a process prints after it has
closed the run."""


class ProcessLine(Struct, frozen=True):
    """A line that a process has printed, redacted as `redact:` says. `start`: not printed, but the mark that a process
    starts, with its time in UTC; else empty. An agent may print what looks like one."""

    text: str
    start: str = ""


class ProcessLog(Struct, frozen=True):
    """Lines from the place `begin` to `end` of a log that has `bytes`. `path`: its file, or its URL; empty if there is
    none."""

    lines: list[ProcessLine]
    begin: int
    end: int
    bytes: int
    path: str = ""


def page(place: Place, *, before: int | None = None, after: int | None = None, most: int = PAGE) -> ProcessLog:
    """The last lines before a place, or the first ones from a place on; without one the last of all. Costs what is on
    the page, whatever the log has."""
    store = place.store
    store.refresh()
    redactor, text = redactor_of(define(store)), _Text(store)
    if after is not None:
        begin = min(after, text.bytes)
        return _shown(text, redactor, _after(text, begin, most), begin)
    return _before(text, redactor, text.bytes if before is None else before, most)


def _before(text: _Text, redactor: Redactor, place: int, most: int) -> ProcessLog:
    end = min(place, text.bytes)
    begin = max(0, end - PAGE_BYTES)
    found = text.read(begin, end - begin).splitlines(keepends=True)
    if begin and len(found) > 1:
        del found[0]  # it may be a part of a line
    found = found[-most:]
    return _shown(text, redactor, found, end - sum(map(len, found)))


def _after(text: _Text, begin: int, most: int, *, waits: bool = False) -> list[bytes]:
    """`waits`: a line that a process may still be writing is left for later."""
    data = text.read(begin, PAGE_BYTES)
    found = data.splitlines(keepends=True)
    is_cut = bool(found) and not found[-1].endswith((b"\n", b"\r"))
    is_cut = is_cut and (len(found) > 1 or (waits and len(data) < PAGE_BYTES))
    if is_cut and (waits or begin + len(data) < text.bytes):
        del found[-1]
    return found[:most]


def _shown(text: _Text, redactor: Redactor, found: list[bytes], begin: int) -> ProcessLog:
    data = b"".join(found)
    if not data:
        return ProcessLog([], begin, begin, text.bytes, text.path)
    told = [ProcessLine(each, child.started_at(each)) for each in lines_of(redactor.text(_decoded(data)))]
    return ProcessLog(told, begin, begin + len(data), text.bytes, text.path)


def _decoded(data: bytes) -> str:
    """Without the end of the last line, which would be one more."""
    return data.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def lines(place: Place, last: int | None = None, *, follows: bool = False) -> Iterator[ProcessLine]:
    """All lines, or the last ones. With `follows` then also those to come, until the run is completed or cancelled, but
    those that are gone from the disk before they were read."""
    if follows:
        arguments.no_loop("process_log", "use `process_log_page()` there")
    return _lines(place, arguments.count("last", last, least=0), follows)


def _lines(place: Place, last: int | None, follows: bool) -> Iterator[ProcessLine]:
    store = place.store
    store.refresh()
    redactor, text = redactor_of(define(store)), _Text(store)
    at = 0 if last is None else _back(text, last)
    end = None if follows else text.bytes  # what comes meanwhile is for those who follow
    read = text.read(max(0, at - _KNOWN), min(at, _KNOWN))  # the last of what is before the place
    sizes, is_over, quiet = dict[int, int](), False, 0
    while True:
        found = _after(text, at, PAGE, waits=follows)
        if follows and text.was_restarted:
            text, at = _moved(place, text, at, read)
            continue
        quiet = 0 if found else quiet + 1
        shown = _shown(text, redactor, found, at)
        yield from shown.lines
        at, read = shown.end, (read + b"".join(found))[-_KNOWN:]
        if end is not None and at >= end:
            return
        if found and at < text.bytes:
            continue
        if end is None:
            now = journal.sizes(store)
            if now != sizes:
                sizes, is_over = now, bool(now) and look_beside(store).moment.status in OVER
            if is_over and quiet > _QUIET and lease.holder(store) is None:
                yield from _shown(text, redactor, _after(text, at, PAGE), at).lines
                return
            at_once(place.look_again(_LOOK))
        text, at = _moved(place, text, at, read)


def _moved(place: Place, known: _Text, at: int, read: bytes) -> tuple[_Text, int]:
    """The log as it is now, and where the place `at` is in it, which comes after what was `read`."""
    text = _Text(place.store)
    if text.before == known.before:
        return text, at
    if text.newest >= known.newest:  # its end was copied, and it is about to be emptied
        at_once(place.look_again(_LOOK))
        text = _Text(place.store)
    own, old = at - known.bytes + known.newest, text.bytes - text.newest
    read = read[-own:] if own > 0 else b""
    found = text.read(0, old).rfind(read, 0, max(0, old - max(0, known.bytes - at))) if read else -1
    return text, found + len(read) if found >= 0 else 0


def _back(text: _Text, count: int) -> int:
    """The place before the last `count` lines."""
    at = text.bytes
    while at and count:
        size = min(at, PAGE_BYTES)
        found = text.read(at - size, size).splitlines(keepends=True)
        if at > size and len(found) > 1:
            del found[0]
        found = found[-count:]
        at -= sum(map(len, found))
        count -= len(found)
    return at


class _Text:
    """The bytes of a log as they are now: of the file before it, and then of its own, `newest` in number."""

    def __init__(self, store: Store):
        folder, name = os.path.split(child.LOG)
        self._store, self._old = store, f"{child.LOG}.old"
        self.before = self._version()  # of the file before it. First: what comes between is noticed later
        files = _sizes(store, folder, name)
        self.path = child.log_of(store) if not store.abilities.remote else f"{store.url}/{child.LOG}"
        if store.abilities.remote and (not files or _is_held_here(store)):
            above, own = os.path.split(child.log_of(store))
            here = DiskStore(above)
            if _sizes(here, "", own):
                self._store, self._old, self.path = here, f"{own}.old", child.log_of(store)
                self.before, files = self._version(), _sizes(here, "", own)
        self._files = files
        self.bytes = sum(each.size for each in files)
        self.newest = files[-1].size if files else 0
        self.path = self.path if files else ""

    def _version(self) -> Version | None:
        return None if self._store.abilities.remote else self._store.version(self._old)  # an uploaded log has none

    @property
    def was_restarted(self) -> bool:
        """It was started again since, so that the places are others."""
        return self._version() != self.before

    def read(self, begin: int, size: int) -> bytes:
        """A part; fewer bytes where the log has been started again meanwhile."""
        found = b""
        for path, bytes in self._files:
            if begin < bytes and size > len(found):
                with suppress(FileNotFoundError):
                    found += self._store.part(path, begin, min(bytes - begin, size - len(found)))
            begin = max(0, begin - bytes)
        return found


def _sizes(store: Store, folder: str, name: str) -> list[Entry]:
    """The file before, and the newest one, where they are."""
    path = f"{folder}/{name}" if folder else name
    there = {each.path: each for each in store.list(folder)}
    return [there[each] for each in (f"{path}.old", path) if each in there]


def _is_held_here(store: Store) -> bool:
    held = lease.holder(store)
    return held is not None and held.host == socket.gethostname()
