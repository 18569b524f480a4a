"""The two ends of a transfer: that they are two, and that the far one can be made."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..base import UsageError, urls
from ..store import Store, Syscalls, open_store, settle_place


@contextmanager
def destination(typed: str, source: Store) -> Iterator[Store]:
    """The store at `typed`, to which the body brings a workspace. A missing folder is made, durably, and removed again
    if the body fails before anything is in it."""
    typed = urls.checked(typed)
    if urls.is_remote(typed):
        store = open_store(typed)
        refuse_overlap(source, store.url)
        yield store
        return
    folder = urls.local(typed)
    refuse_overlap(source, os.path.realpath(folder))
    calls, made = Syscalls(), list[str]()
    try:
        _make(calls, os.path.abspath(folder), made)
        settle_place(calls.resolve(folder), calls)
        yield open_store(folder)
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                calls.rmdir(path)
        raise


def refuse_overlap(source: Store, url: str) -> None:
    """UsageError if the two places are one, or one is inside the other."""
    here, there = source.url.rstrip("/"), url.rstrip("/")
    if here == there or (not urls.is_remote(here) and not urls.is_remote(there) and _is_same_folder(here, there)):
        raise UsageError("is the place where the run already is", path=url, remedy="name another place")
    if there.startswith(f"{here}/"):
        raise UsageError("is inside the workspace itself", path=url, remedy="name a place outside it")
    if here.startswith(f"{there}/"):
        raise UsageError("contains the workspace itself", path=url, remedy="name a place next to it")


def _is_same_folder(one: str, other: str) -> bool:
    """A bind mount, or a file system that ignores upper and lower case."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _make(calls: Syscalls, folder: str, made: list[str]) -> None:
    with suppress(OSError):
        if stat.S_ISDIR(calls.stat(calls.resolve(folder)).st_mode):
            return
    with suppress(FileNotFoundError, NotADirectoryError):
        calls.stat(folder)
        raise UsageError("is a file", path=folder, remedy="name a folder, which need not exist yet")
    _make(calls, os.path.dirname(folder), made)
    try:
        calls.mkdir_shared(folder)
    except OSError as error:
        raise UsageError(
            "can't be made",
            path=folder,
            why=error.strerror or str(error),
            remedy=f"check that you may write in {shlex.quote(os.path.dirname(folder))}",
        ) from error
    made.append(folder)
