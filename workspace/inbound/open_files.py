"""Which files of people are being saved at this moment: `status` names them, and a start waits for them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..base import DEFINITION
from ..formats import pause_file
from ..store import ListedDisk, Store, listed
from ..views import guarded_files, is_left_open, projection
from . import inbox
from .question import APPROVALS

_LONGEST = 60.0
_LOOK = 0.1


def being_saved(store: Store, *, with_inbox: bool = False) -> list[str]:
    """The files that a program has open for writing and that are not taken yet, because they may be half saved."""
    if store.abilities.remote:
        return []
    looked = listed(store)
    paths = [*_files(looked), *(inbox.files(looked) if with_inbox else ())]
    recent = [path for path in paths if _is_recent(looked, path)]  # asking for a writer means opening the file
    return [path for path in recent if store.has_writer(path) and not is_left_open(store, path)]


def until_saved(store: Store) -> Iterator[tuple[float, str]]:
    """Seconds to wait before the next look, and what for, as long as a program is saving a file. Gives up after a
    minute: the active run then takes such a file, or leaves it."""
    give_up = time.monotonic() + _LONGEST
    while (paths := being_saved(store)) and time.monotonic() < give_up:
        yield _LOOK, paths[0]


def said(path: str) -> str:
    """The message about one of them."""
    seconds = guarded_files.WAITS.open_pause if path == pause_file.PATH else guarded_files.WAITS.open
    return (
        f"{path} is being saved: the run reads it when the program has closed it, or left it alone for {seconds:.0f} s"
    )


def _is_recent(store: Store, path: str) -> bool:
    """Whether it was written in the last minute, as far as a listing tells. An older one is not half saved, although a
    program may have it open."""
    folder, _, name = path.rpartition("/")
    status = store.facts(folder).get(name) if isinstance(store, ListedDisk) else None
    return status is None or status.st_mtime > time.time() - _LONGEST


def _files(store: Store) -> Iterator[str]:
    yield from (DEFINITION, pause_file.PATH)
    yield from (entry.path for entry in store.list(APPROVALS))
    yield from projection.files_there(store)
