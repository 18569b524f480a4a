"""Find the workspace that a person or a program has named."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from ...workspace.base import DEFINITION, UsageError, arguments, urls
from ...workspace.inspect import below, below_store, transfer_file
from ...workspace.store import Store, open_store
from . import storage
from .handle import Handle

PATIENCE = 12.0
"""Seconds during which a request to a bucket is repeated, except in a run."""


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
    patience: float | None = PATIENCE,
) -> Handle:
    """A handle on the workspace at `url`: a folder, or a URL such as `s3://bucket/runs/my-run`; None is the current
    folder.

    Changes nothing, takes no lock and runs no code. Sends one request to a bucket, so that wrong credentials are
    reported now. `storage_options`: options of the storage with the names of fsspec. They are merged into the
    environment variable of the protocol (`FSSPEC_S3`), so they hold for this process and those it starts. `tell` is
    called with a line of text for people while a method runs, such as what it waits for. `patience`: seconds during
    which a request to a bucket is repeated; None: as long as a run would, and then no request is sent yet.

    Raises UsageError for what can't be a workspace, and StorageFailed if a bucket does not answer. Not guaranteed: that
    there is a workspace. The first method that needs workspace.yaml reports that it is missing.
    """
    arguments.function("tell", tell)
    if url is None:
        storage.use(".", storage_options)
        if not os.path.isfile(DEFINITION) and not os.path.isfile(transfer_file.MOVED):
            raise UsageError(
                "the current folder is not a workspace",
                why=f"it has no {DEFINITION}",
                remedy="name a workspace; `satchel ls` lists them",
            )
        return Handle(open_store("."), "", tell)
    typed = arguments.place("url", url)
    if os.path.isfile(typed):
        folder = os.path.dirname(typed) or "."
        remedy = f"name its folder: {shlex.quote(folder)}" if os.path.basename(typed) == DEFINITION else None
        raise UsageError("is a file, and a workspace is a folder", path=typed, remedy=remedy)
    if patience is None:
        storage.use(urls.checked(typed), storage_options)
        return Handle(open_store(urls.checked(typed)), typed, tell, is_patient=True)
    return Handle(reach(typed, storage_options, arguments.seconds("patience", patience)), typed, tell)


def open_all(
    root: str | os.PathLike[str] = ".",
    *,
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Handle]:
    """Handles on the workspaces below `root`, a folder or URL, at any depth, by name. See `open` for the arguments.

    Skips hidden folders, links, and folders inside a workspace. A folder that can't be read is included, since it may
    hold a run; its first method call says why. UsageError if `root` is no folder. Not guaranteed: workspaces that are
    made or removed meanwhile.
    """
    arguments.function("tell", tell)
    typed = arguments.place("root", root)
    store = root_of(typed, storage_options)
    if store is None:
        folders = below(typed)
        return [Handle(open_store(folder), folder, tell, was_found=True) for folder in folders]
    return [Handle(each, each.url, tell, was_found=True) for each in below_store(store)]


def root_of(typed: str, storage_options: Mapping[str, Any] | None) -> Store | None:
    """The store that holds workspaces at a URL; None for a folder. UsageError if it is neither."""
    place = urls.checked(typed)
    if urls.is_remote(place):
        return reach(place, storage_options)
    storage.use(place, storage_options)
    if not os.path.isdir(place):
        is_file = os.path.exists(place)
        raise UsageError("is a file, not a folder" if is_file else "no such folder", path=typed)
    return None


def reach(typed: str, storage_options: Mapping[str, Any] | None, patience: float | None = PATIENCE) -> Store:
    """The store at a path or URL. Reports a wrong address or wrong credentials at once."""
    place = urls.checked(typed)
    storage.use(place, storage_options)
    if not urls.is_remote(place):
        return open_store(place)
    urls.check_protocol(place)
    store = open_store(place, patience=patience)
    store.refresh()
    return store
