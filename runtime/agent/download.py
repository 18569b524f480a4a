"""The agent's code of a workspace in a bucket: a private copy to import from, which lives as long as this process.

Only a run makes one. Files are data until then, and none is written outside the copy.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress

from ...workspace.base import OF_A_RUN, Refused, check_path
from ...workspace.state import prompts
from ...workspace.store import Store, Version

LIMIT = 16 << 20
"""Bytes of code that are fetched. More is not the source of an agent."""
_MOST = 2000  # files
_PREFIX = "satchel-agent-"

_Files = tuple[tuple[str, Version], ...]
_copies: dict[tuple[str, _Files], str] = {}
"""Folders by their originals. The same code is fetched once; another version goes to another folder."""


def folder_of(store: Store) -> str:
    """The folder to import a workspace's own code from: the workspace itself on a disk, else a copy."""
    if not store.abilities.remote:
        return store.url
    paths = tuple(_code(store))
    files = tuple((path, version) for path in paths if (version := store.version(path)) is not None)
    key = (store.url, files)
    if key not in _copies:
        _copies[key] = _fetch(store, files)
    return _copies[key]


def shown(file: str) -> str | None:
    """The name of a copied file in the workspace; None if the file is not in a copy."""
    for folder in _copies.values():
        if file.startswith(f"{folder}/"):
            return os.path.relpath(file, folder)
    return None


def clear(pid: int) -> None:
    """Remove the copies of a killed process. The caller knows that it was one of ours and is dead."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            is_its = entry.name.startswith(f"{_PREFIX}{pid}-") and entry.is_dir(follow_symlinks=False)
            if is_its and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                shutil.rmtree(entry.path, ignore_errors=True)


def _code(store: Store, folder: str = "") -> Iterator[str]:
    """All modules, and all files with prompts. Not the files of the run, and nothing hidden."""
    size, count = 0, 0
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        for entry in store.list(here):
            if entry.path.endswith(".py") or entry.path.startswith(f"{prompts.FOLDER}/"):
                size, count = size + entry.size, count + 1
                if size > LIMIT or count > _MOST:
                    raise Refused(
                        "the workspace's own code can't be fetched",
                        path=store.url,
                        why=f"its modules and prompts are more than {LIMIT >> 20} MiB or {_MOST:,} files",
                        remedy="move other files away, or name an installed agent: `agent: package.module:main`",
                    )
                yield entry.path
        waiting += [inner for inner in store.folders(here) if not _is_passed_over(inner)]


def _is_passed_over(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return (
        name.startswith(".")
        or name == "__pycache__"
        or folder in OF_A_RUN
        or (folder.startswith("agents/") and name in OF_A_RUN)
    )


def _fetch(store: Store, files: _Files) -> str:
    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))  # mode 700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    left = LIMIT
    for path, _ in files:
        full = os.path.join(folder, *check_path(path).split("/"))
        data = store.read(path, limit=left).data
        left -= len(data)
        try:
            os.makedirs(os.path.dirname(full), mode=0o700, exist_ok=True)
            with open(full, "xb") as file:
                file.write(data)
        except OSError as error:  # a.py next to a.py/b.py, for example, which only a bucket can hold
            raise Refused("the workspace's own code can't be fetched", path=path, why=str(error.strerror)) from error
    return folder
