"""A workspace as a person named it."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Callable

from ...workspace.base import urls, visible
from ...workspace.store import Store, open_store
from .waiting import Steps

REMOTE_LOOK = 1.5
"""Seconds between two looks at a workspace in a bucket, where each look costs requests."""

_FRESH = 10.0


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
