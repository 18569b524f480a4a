"""Commands and listeners of other distributions, and of Satchel's own faces, found by their entry points.

`satchel.commands`    NAME = "module:attribute", a click command; `satchel NAME` calls it
`satchel.listeners`   what `satchel serve --listen` takes tasks by: `listening_of_options` of the web face

An entry point may name the extra that it needs, `"module:attribute [EXTRA]"`: an error then says what to install.

Looking for them reads the metadata of all installed distributions, which is slow. So it is done only for a word that is
no command of Satchel itself, and for the list of commands.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from ...workspace.base import Refused, visible

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_COMMANDS = "satchel.commands"
_LISTENERS = "satchel.listeners"


@functools.cache
def _found(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name, in the order of the names. Two for one name: two distributions have it."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for each in sorted(entry_points(group=group), key=lambda each: (each.name, _owner(each))):
        found.setdefault(each.name, []).append(each)
    return found


def names() -> list[str]:
    """The commands of plugins."""
    return [*_found(_COMMANDS)]


def load_command(name: str) -> click.Command:
    """The command of a plugin. Refused if two distributions have it, or if it cannot be imported."""
    loaded = _load(f"the command {name!r}", _found(_COMMANDS)[name])
    if not isinstance(loaded, click.Command):
        (entry,) = _found(_COMMANDS)[name]
        raise Refused(f"the command {name!r} of {_owner(entry)} is no click command", why=f"it is {loaded!r}")
    return loaded


def summary(name: str) -> str:
    """What `--help` says about the command of a plugin. One that can't be used says why."""
    try:
        return load_command(name).get_short_help_str(limit=100)
    except Refused as error:
        return f"(can't be used: {visible(str(error).splitlines()[0])})"


def listener() -> Any:
    """What opens the listener of `satchel serve --listen`."""
    found = [entry for entries in _found(_LISTENERS).values() for entry in entries]
    if not found:
        raise Refused("no installed distribution can listen", remedy="install it with `pip install 'satchel[listen]'`")
    return _load("the listener of `satchel serve --listen`", found)


def _load(what: str, entries: list[EntryPoint]) -> Any:
    if len(entries) > 1:
        owners = " and ".join(_owner(each) for each in entries)
        raise Refused(f"{what} is in {owners}", why="only one can have it", remedy="uninstall one of them")
    (entry,) = entries
    try:
        return entry.load()
    except Exception as error:  # whatever a module of others does when it is imported
        why = f"{type(error).__name__}: {error}"
        remedy = f"repair or uninstall {_owner(entry)}"
        if isinstance(error, ModuleNotFoundError) and entry.extras:
            remedy = f"install it with `pip install '{_owner(entry)}[{','.join(entry.extras)}]'`"
        raise Refused(f"{what} of {_owner(entry)} can't be imported", why=why, remedy=remedy) from error


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
