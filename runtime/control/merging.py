"""Conflicts between files and the run, and their resolution."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, get_args

from msgspec import Struct

from ...workspace.base import SatchelError, UsageError
from ...workspace.inbound.edits import Conflict, Noticed, Side, notice
from ...workspace.inspect import Remark, Report, lease, look
from ...workspace.lifecycle import opened
from . import takeover
from .place import Place
from .waiting import Steps

Files = str | os.PathLike[str] | Collection[str | os.PathLike[str]]
"""One file, or several: by their paths in the workspace or on the disk."""

_LOOKS = 5


class Merging(Struct, frozen=True):
    """The result of merging edited files.

    `conflicts`: files that conflict with the run, each with `path`, the `places` in words, and both versions, `ours`
    (the run's) and `theirs` (the file's), in bytes. `merged`: what the next opening takes from files, in words.
    `refused`: why a file can't be taken at all. `settled`: the paths of conflicts that this call has resolved, and
    `report` what it did.
    """

    conflicts: tuple[Conflict, ...]
    merged: tuple[str, ...]
    refused: tuple[SatchelError, ...]
    settled: tuple[str, ...] = ()
    report: tuple[Remark, ...] = ()

    @property
    def open(self) -> list[Conflict]:
        """The unresolved conflicts."""
        return [each for each in self.conflicts if each.path not in self.settled]


def merge(place: Place, side: Side | None, files: Files) -> Steps[Merging]:
    """Resolve conflicts: all, or those of `files`. Without a `side` nothing changes."""
    if side is not None and side not in get_args(Side):
        raise UsageError(f"{side!r} is not a side", path=place.url, remedy="write ours, theirs or edited")
    given = [files] if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Collection) else files
    paths = [_path(place, each) for each in given]
    noticed = yield from _notice(place)
    asked = [question.path for question in noticed.questions]
    if unknown := [path for path in paths if path not in asked]:
        raise UsageError(
            f"there is no conflict in {unknown[0]}",
            path=place.url,
            remedy=f"conflicts: {', '.join(asked)}" if asked else "there is no conflict: `satchel resume` continues",
        )
    settled: tuple[str, ...] = ()
    report = Report()
    if side is not None and asked:
        settled = tuple(dict.fromkeys(paths or asked))
        yield from takeover.wait(place)
        choices = dict.fromkeys(settled, side)
        with opened(place.store, "merge", report, choices=choices, take_over=True) as workspace:
            workspace.close()
    merged = tuple(f"{each.record.file}: {say}" for each in noticed.edits for say in each.record.says)
    refused = tuple(each.error for each in noticed.refusals)
    return Merging((*noticed.questions,), merged, refused, settled, (*report.remarks,))


def _path(place: Place, file: Any) -> str:
    """The path of a file in the workspace."""
    if not isinstance(file, str | os.PathLike):
        raise UsageError(f"{file!r} is not the path of a file", path=place.url, remedy="give it as text, or a Path")
    return os.fspath(file).removeprefix(f"{place.url}/")


def _notice(place: Place) -> Steps[Noticed]:
    store = place.store
    for _ in range(_LOOKS):
        seen = look(store)
        noticed = notice(store, seen.moment, seen.definition, is_rebuilt=seen.is_rebuilt)
        if not noticed.refusals or lease.holder(store) is None:
            break
        yield from place.look_again(0.1)  # its files may have changed since the journal was read
    return noticed
