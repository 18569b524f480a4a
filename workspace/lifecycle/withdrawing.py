"""A pause that is taken back before the run has stopped."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..formats import pause_file
from ..inspect import lease
from ..journal.records import Resumed
from ..store import FileChanged, Store, Version
from ..views import read_back
from . import pausing

if TYPE_CHECKING:
    from .workspace import Workspace


def withdraw(workspace: Workspace, wanted: pausing.Wish) -> None:
    """The run has not stopped, and a person has written that it shall not: first the record, then remove the file. A
    request that is not on record yet is recorded, too, so that the log says what has come of it."""
    file, by = wanted.file, wanted.by or "a person"
    assert file is not None
    if wanted.recorded is not None or file.reason or file.by:  # else there was no request, only `status: resume`
        if wanted.recorded is None:
            workspace.journal.add(lease.pause_request(file, by))
        said = ("withdrawn before the run had stopped",)
        workspace.journal.add(Resumed(by=by, instructions=file.instructions, says=said))
        workspace.journal.flush()
    pausing.clear_lifted(workspace)  # after what is still being written into it
    workspace.behind.do(pause_file.PATH, partial(_remove_version, workspace.store, wanted.version))


def _remove_version(store: Store, version: Version | None) -> None:
    """Unless a person has saved it since."""
    with suppress(FileNotFoundError, FileChanged):
        if not store.has_writer(pause_file.PATH) and read_back(store, pause_file.PATH).version == version:
            store.remove(pause_file.PATH, if_version=version)
