"""A workspace as a person named it; its storage; and waiting for it.

A workspace may be taken once no person is saving a file in it and its holder has gone. Options of the storage behind a
URL have the names of fsspec. They go into the environment, where fsspec reads them. So started processes have them too,
and they are in no command line.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...workspace.base import LeaseHeld, NoWorkspace, UsageError, arguments, since, urls, visible
from ...workspace.inspect import Lease, lease
from ...workspace.store import Store, open_store
from .twins import Steps

PATIENCE = 12.0
"""Seconds during which a request to a bucket is repeated, except in a run."""

REMOTE_LOOK = 1.5
"""Seconds between two looks at a workspace in a bucket, where each look costs requests."""

_FRESH = 10.0


def check_main_thread(call: str, instead: str) -> None:
    """UsageError in another thread: only the main one can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"{call} can't be called in the thread {threading.current_thread().name!r}",
            why="it handles signals, which only the main thread can",
            remedy=f"call it in the main thread, or {instead}",
        )


def use_options(place: str, storage_options: Mapping[str, Any] | None) -> None:
    """Apply options to the storage of `place`, from now on. UsageError for a path."""
    options = arguments.mapping("storage_options", storage_options)
    if not options:
        return
    if not urls.is_remote(place):
        raise UsageError(
            "storage options are only for URLs", path=place, why="this is a local folder", remedy="leave them out"
        )
    scheme = urls.protocol(place)
    _put("s3" if scheme == "s3a" else scheme, options)


def target(to: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> str:
    """Where a run is to be made, with these options of its storage. UsageError for what can't be such a place."""
    typed = arguments.target("to", to)
    use_options(urls.checked(typed), storage_options)
    if urls.is_remote(typed):
        urls.check_protocol(urls.checked(typed))
    return typed


def _put(scheme: str, options: Mapping[str, Any]) -> None:
    """Merge options into the environment variable of a protocol. They replace its values."""
    name = f"FSSPEC_{scheme.upper()}"
    try:
        merged = json.dumps({**_said(name), **options})
    except (TypeError, ValueError) as error:  # it never shows a value
        raise UsageError(
            "storage_options can't be handed on to other processes",
            why=str(error),
            remedy="give values as JSON has them: texts, numbers, lists, dicts",
        ) from None
    for key in list(os.environ):
        if key.upper() in {f"{name}_{option.upper()}" for option in options}:
            del os.environ[key]  # fsspec would prefer it
    os.environ[name] = merged
    if (config := sys.modules.get("fsspec.config")) is not None:  # it has read the environment already
        config.conf.setdefault(scheme, {}).update(options)


def _said(name: str) -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"the environment variable {name} is not a JSON object", remedy="correct or unset it")
    return found


class Place:
    """The files of a workspace, and the text by which a person named it."""

    def __init__(
        self,
        store: Store,
        typed: str,
        tell: Callable[[str], None] | None = None,
        *,
        is_patient: bool = False,
        was_found: bool = False,
    ):
        """`typed` is empty for the current folder. `tell` is called with a line of text for people before the result is
        there, such as what it waits for. `is_patient`: the store repeats requests as long as a run does. `was_found`: a
        search has found it to be a workspace."""
        self.store, self.typed = store, typed
        self.is_patient, self.was_found = is_patient, was_found
        self.tell = tell or (lambda line: None)
        self._listed_at = time.monotonic()  # a handle is made with a listing of its files

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {visible(self.url)}>"

    @property
    def url(self) -> str:
        """An absolute path, or a URL."""
        return self.store.url

    def command(self, name: str, *words: str) -> str:
        """A command about this workspace that the same person can type. Safe to print."""
        return visible(shlex.join(["satchel", name, *([self.named] if self.named else []), *words]))

    @property
    def named(self) -> str:
        """As a command of this process can name it: as it was typed, if that still leads there, since the current
        folder may be another one by now. Empty for the current folder."""
        leads_there = urls.is_remote(self.typed) or os.path.realpath(self.typed or ".") == self.url
        return self.typed if leads_there else self.url

    def store_of_a_run(self) -> Store:
        """The store for a run. It repeats requests longer than a store for a person at a terminal."""
        self._listed_at = -math.inf
        if self.is_patient or not self.store.abilities.remote:
            return self.store
        return open_store(urls.checked(self.typed))

    def look_now(self) -> None:
        """See the files as they are now. In a bucket that costs a request, so the first look after `open` uses the
        listing that it has made, if nothing has run since."""
        if time.monotonic() - self._listed_at > _FRESH:
            self.store.refresh()
        self._listed_at = -math.inf

    def look_again(self, seconds: float) -> Steps[None]:
        """Wait before the next look at the files; longer if a look costs requests."""
        yield max(seconds, REMOTE_LOOK) if self.store.abilities.remote else seconds
        self.store.refresh()


def holder_to_replace(place: Place) -> str:
    """The process that would lose a workspace in a bucket, in words; empty if none has it. UsageError on a disk."""
    store = place.store
    if store.abilities.lock:
        raise UsageError(
            "there is nothing to take over on a disk",
            path=store.url,
            why="its lock is free as soon as the process that holds it ends",
            remedy=f"stop that process: `{place.command('stop')}`",
        )
    store.refresh()
    held = lease.read(store)
    return "" if held is None or lease.has_died(held) else describe_holder(store, held)


def check_free(store: Store) -> None:
    """LeaseHeld, without waiting, if the holder's last heartbeat is recent. On a disk the lock tells."""
    if not store.abilities.lock and (held := lease.holder(store)) is not None:
        raise LeaseHeld("another process is running this workspace", path=store.url, why=describe_holder(store, held))


def wait_until_free(place: Place) -> Steps[None]:
    """Wait until the workspace may be taken and no program is saving one of its files. LeaseHeld if its holder is
    alive. Calls `tell` with what it waits for."""
    from ...workspace.inbound import open_files
    from ...workspace.lifecycle import acquire  # slow, and most handles never wait

    store = place.store
    told: set[str] = set()
    for pause, path in open_files.until_saved(store):
        if path not in told:
            place.tell(f"waiting: {open_files.said(path)}")
        told.add(path)
        yield pause
    is_told = False
    for pause, held in acquire.until_free(store):
        if not is_told:
            place.tell(f"{describe_holder(store, held)}; waiting {held.ttl:.0f} s for its heartbeat")
            is_told = True
        yield pause


def describe_holder(store: Store, held: Lease) -> str:
    """Which process has it, since when, and its last heartbeat."""
    beaten = store.trace(lease.PATH).at
    last = f", last heartbeat at {since(beaten)}" if held.ttl and beaten else ""
    return visible(f"{held.process} has it since {since(held.since)}{last}")


def root_of(typed: str, storage_options: Mapping[str, Any] | None) -> Store | None:
    """The store that holds workspaces at a URL; None for a folder. UsageError if it is neither."""
    place = urls.checked(typed)
    if urls.is_remote(place):
        return reach(place, storage_options)
    use_options(place, storage_options)
    if not os.path.isdir(place):
        if os.path.exists(place):
            raise UsageError("is a file, not a folder", path=typed)
        raise NoWorkspace("no such folder", path=typed)
    return None


def reach(typed: str, storage_options: Mapping[str, Any] | None, patience: float | None = PATIENCE) -> Store:
    """The store at a path or URL. Reports a wrong address or wrong credentials at once."""
    place = urls.checked(typed)
    use_options(place, storage_options)
    if not urls.is_remote(place):
        return open_store(place)
    urls.check_protocol(place)
    store = open_store(place, patience=patience)
    store.refresh()
    return store
