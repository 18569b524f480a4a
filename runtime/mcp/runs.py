"""The runs below a folder or URL, by name: their folder, relative to the root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...workspace.base import DEFINITION, SatchelError, UsageError, arguments, is_name, urls
from ...workspace.inspect import transfer_file
from .. import control
from ..control import Handle, Standing, is_run, leads_below

_NAMED = 20  # runs that an error names
_ANOTHER = "choose another name"


class Runs:
    """Each method looks again: nothing is kept, so a server can be killed at any moment. Methods block."""

    def __init__(self, root: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None):
        typed = urls.checked(arguments.place("root", root))
        self._is_remote = urls.is_remote(typed)
        self.root = typed.rstrip("/") if self._is_remote else os.path.realpath(typed)
        control.open_all(typed, storage_options=storage_options)  # says now what is wrong with the root
        self._is_run = is_run(self.root)

    @property
    def is_remote(self) -> bool:
        """Whether each look is a request over a network."""
        return self._is_remote

    def all(self) -> dict[str, Handle]:
        """A handle on each run, by name, in the order of the names."""
        found = {self.name(each): each for each in control.open_all(self.root)}
        return {name: found[name] for name in sorted(found)}

    def standings(self) -> dict[str, Standing]:
        """The brief status of each run, by name, in the order of the names. Includes places that a run has left."""
        found = {self._name_at(each.folder): each for each in control.ls(self.root)}
        return {name: found[name] for name in sorted(found)}

    def find(self, name: str) -> Handle:
        """The run of this name, or with this run_id if only one has it. UsageError names those that there are."""
        if (found := self.at(name)) is not None:
            return found
        standings = self.standings()
        same = [known for known, each in standings.items() if each.definition and each.definition.run_id == name]
        if len(same) == 1 and (found := self.at(same[0])) is not None:
            return found
        known = [*standings]
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        there = f"there are: {', '.join(known[:_NAMED])}{more}" if known else "there is none"
        raise UsageError(
            f"there is no run {name!r}",
            why=there,
            remedy="name one of them" if known else f"`satchel new` makes one below {self.root}",
        )

    def place_of(self, name: str) -> str:
        """The folder or URL of a run that is to be made. UsageError for a name that leads out of the root, or
        into a run."""
        if not all(map(_is_visible, name.split("/"))):
            raise UsageError(
                f"a run can't be named {name!r}", remedy="give the name of a folder, without '..' and a leading '.'"
            )
        place = f"{self.root}/{name}"
        if not self._is_remote and os.path.realpath(place) != place:
            raise UsageError(f"a run can't be named {name!r}", why="it leads through a link", remedy=_ANOTHER)
        if (run := self._run_above(name)) is not None:
            raise UsageError(f"a run can't be named {name!r}", why=f"{run} is a run itself", remedy=_ANOTHER)
        return place

    def _run_above(self, name: str) -> str | None:
        """The run in whose folder this name leads. What lies there are its files, perhaps copied from strangers."""
        if self._is_run:
            return self.root
        names = name.split("/")
        places = (f"{self.root}/{'/'.join(names[:number])}" for number in range(1, len(names)))
        return next(filter(is_run, places), None)

    def at(self, name: str) -> Handle | None:
        """The run of this name, found without a look at the others; None if there is none."""
        places = [self.root] if name == self._own_name else []
        if leads_below(name, is_remote=self._is_remote) and self._run_above(name) is None:
            places.append(f"{self.root}/{name}")
        return next((handle for place in places if (handle := self._opened(place)) is not None), None)

    def _opened(self, place: str) -> Handle | None:
        """None if no run is there, or was there before it moved."""
        if not self._is_remote and (os.path.realpath(place) != place or not os.path.isdir(place)):
            return None
        handle = control.open(place)
        try:
            is_run = any(handle.store.version(name) is not None for name in (DEFINITION, transfer_file.MOVED))
        except SatchelError:
            return handle  # its methods say what is wrong
        return handle if is_run else None

    @property
    def _own_name(self) -> str:
        """The name of the root, for the case that it is a workspace itself."""
        return self.root.rpartition("/")[2]

    def name(self, handle: Handle) -> str:
        """The name of a run of this root."""
        return self._name_at(handle.url)

    def _name_at(self, place: str) -> str:
        return place.removeprefix(self.root).strip("/") or self._own_name


def _is_visible(name: str) -> bool:
    return is_name(name) and not name.startswith(".")
