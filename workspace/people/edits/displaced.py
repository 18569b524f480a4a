"""Saves into a file while the run was replacing it, if the process ended before it looked at them."""

from __future__ import annotations

import re
from urllib.parse import unquote

from ...base import Refused, SatchelError
from ...state import Moment
from ...store import DISPLACED, FileChanged, Store, displaced_name, read_if_there
from ...views import projection
from .findings import Refusal
from .rejected import is_known, is_ours, reject

_NAME = re.compile(r"\d+-\d+-(?P<version>\d+-\d+-\d+)-(?P<path>.+?)~?")
_HASH = re.compile("[0-9a-f]{64}")


def put_back(store: Store, moment: Moment) -> None:
    """Put such saves back, to be merged like any other, and remove the rest. If a later save is in the place, the
    earlier one is kept as rejected."""
    for entry in [*store.list(DISPLACED)]:
        match = _NAME.fullmatch(entry.path.rpartition("/")[2])
        if match is None:
            continue
        path = _path(moment, match["path"])
        if store.has_writer(entry.path):
            continue  # more may come
        if store.version(entry.path) == match["version"]:
            store.remove(entry.path)  # it is as it was when the run had written or merged it
            continue
        try:
            data = store.read(entry.path).data
            there = read_if_there(store, path)
        except SatchelError:
            continue  # it stays where it is
        if not (is_known(moment, path, data) or (there and there.data == data)):
            if there is None or is_ours(moment, path, there.data):
                try:
                    store.replace(path, data, if_version=there.version) if there else store.create(path, data)
                except (FileChanged, FileExistsError):
                    continue  # saved once more at this moment: the next opening looks again
            else:
                error = Refused(
                    "was saved twice at the same time",
                    path=path,
                    why="the other version is newer",
                    remedy="add to the newer version what is missing there",
                )
                reject(store, Refusal(path, error, data))
        store.remove(entry.path)


def _path(moment: Moment, name: str) -> str:
    """The path of the file whose displaced version has this name."""
    for agent in moment.agents.values() if _HASH.fullmatch(name) else ():
        files = (agent.folder + projection.STATE, agent.folder + projection.TODO)
        for path in (*files, *(file.path for file in projection.step_files(agent))):
            if displaced_name(path) == name:
                return path
    return unquote(name)
