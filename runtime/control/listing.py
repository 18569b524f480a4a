"""The workspaces below a folder or URL, with the status of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from ...workspace.base import SatchelError, arguments, urls
from ...workspace.inspect import below, below_store, duplicates
from ...workspace.store import AT_ONCE, Store, open_store
from .opening import root_of
from .place import Place
from .standing import Standing, status


def ls(
    root: str | os.PathLike[str] = ".", *, storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Standing]:  # fmt: skip
    """The status of each workspace below `root`, a folder or URL, by name. Includes places that a run has moved away
    from.

    The status is brief, as from `Handle.status(brief=True)`. If a workspace can't be read, `problem` says why. `folder`
    is where it was found, and `same_run_id` names the others with its run_id. `progress` is called with the number of
    workspaces read, and the total. UsageError if `root` is no folder. Not guaranteed: that all are of the same moment.
    """
    arguments.function("progress", progress)
    typed = arguments.place("root", root)
    store = root_of(typed, storage_options)
    there: list[Store | str] = (
        [*below(typed, with_moved=True)] if store is None else [*below_store(store, with_moved=True)]
    )
    found: list[Standing] = []
    with ExitStack() as stack:
        looks: Iterator[Standing] = map(look_at, there)
        if store is not None and store.abilities.remote:  # requests run at the same time
            looks = stack.enter_context(ThreadPoolExecutor(AT_ONCE, "satchel-ls")).map(look_at, there)
        for standing in looks:
            found.append(standing)
            if progress:
                progress(len(found), len(there))
    compare_ids(found)
    return found


def compare_ids(found: Sequence[Standing]) -> None:
    """Note at each run which others have its run_id."""
    known = ((each.folder, each.definition.run_id) for each in found if each.definition)
    same = duplicates.groups(known)
    for each in found:
        folders = same.get(each.definition.run_id, []) if each.definition else []
        each.same_run_id = [folder for folder in folders if folder != each.folder]


def look_at(found: Store | str) -> Standing:
    """The brief status of a workspace that a search has found. If it can't be read, `problem` says why."""
    folder = found if isinstance(found, str) else found.url
    try:
        standing = status(Place(open_store(found) if isinstance(found, str) else found, folder), brief=True)
    except SatchelError as error:
        standing = Standing(_url(folder), problem=error)
    except Exception as error:  # an error in one must not hide the others
        what = f"can't be read ({type(error).__name__}: {error})"
        standing = Standing(_url(folder), problem=SatchelError(what, path=folder))
    standing.folder = folder
    return standing


def _url(folder: str) -> str:
    return folder if urls.is_remote(folder) else os.path.realpath(folder)
