"""The workspaces below a folder or URL, with the status of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ...workspace.base import SatchelError, arguments, urls
from ...workspace.inspect import below, below_store, discovery
from ...workspace.store import AT_ONCE, Store, open_store
from .opening import root_of
from .place import Place
from .standing import Signs, Standing, look_once, signs, status


def ls(
    root: str | os.PathLike[str] = ".",
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Standing]:
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
    if store is not None and store.abilities.remote:
        found = look_at_all(store, there, progress)
    else:
        for each in there:
            found.append(look_at(each))
            if progress:
                progress(len(found), len(there))
    compare_ids(found)
    return found


def look_at_all(
    root: Store, there: Sequence[Store | str], progress: Callable[[int, int], None] | None
) -> list[Standing]:
    """Like `look_at` for runs below `root`, where reading is a request. Requests run at the same time, and one new
    listing is for all doubtful looks: after an outage many runs are interrupted."""
    found, doubts = list[Standing](), dict[int, Signs]()
    threads = ThreadPoolExecutor(AT_ONCE, "satchel-ls")
    try:
        for number, (standing, doubted) in enumerate(threads.map(_look_once, there)):
            found.append(standing)
            if doubted is not None:
                doubts[number] = doubted
            if progress:
                progress(len(found), len(there))
        again = [*doubts]
        if len(doubts) >= root.pages:  # else a listing of each is cheaper
            with suppress(SatchelError, OSError):
                root.refresh()
            again = [number for number, doubted in doubts.items() if signs(_opened(there[number])) != doubted]
        for number, standing in zip(again, threads.map(look_at, [there[number] for number in again]), strict=True):
            found[number] = standing
    finally:
        threads.shutdown(cancel_futures=True)
    return found


def compare_ids(found: Sequence[Standing]) -> None:
    """Note at each run which others have its run_id."""
    known = ((each.folder, each.definition.run_id) for each in found if each.definition)
    same = discovery.duplicate_groups(known)
    for each in found:
        folders = same.get(each.definition.run_id, []) if each.definition else []
        each.same_run_id = [folder for folder in folders if folder != each.folder]


def look_at(found: Store | str) -> Standing:
    """The brief status of a workspace that a search has found. If it can't be read, `problem` says why."""
    return _guarded(found, lambda place: (status(place, brief=True), None))[0]


def _look_once(found: Store | str) -> tuple[Standing, Signs | None]:
    return _guarded(found, lambda place: look_once(place, brief=True))


def _guarded(
    found: Store | str, look: Callable[[Place], tuple[Standing, Signs | None]]
) -> tuple[Standing, Signs | None]:
    folder, doubted = found if isinstance(found, str) else found.url, None
    try:
        standing, doubted = look(Place(_opened(found), folder))
    except SatchelError as error:
        standing = Standing(_url(folder), problem=error)
    except Exception as error:  # an error in one must not hide the others
        what = f"can't be read ({type(error).__name__}: {error})"
        standing = Standing(_url(folder), problem=SatchelError(what, path=folder))
    standing.folder = folder
    return standing, doubted


def _opened(found: Store | str) -> Store:
    return open_store(found) if isinstance(found, str) else found


def _url(folder: str) -> str:
    return folder if urls.is_remote(folder) else os.path.realpath(folder)
