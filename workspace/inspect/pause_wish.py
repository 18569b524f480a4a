"""What pause.yaml requests, for processes that do not have the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import SatchelError
from ..formats import PauseFile, pause_file
from ..store import Store

if TYPE_CHECKING:
    from ..journal.records import PauseRequested


def seen(store: Store) -> PauseFile | None:
    """The current file, as far as it can be understood; None if there is none. Takes no lock and does not wait for a
    save to end."""
    try:
        return pause_file.understood(store.read(pause_file.PATH, limit=pause_file.LIMIT).data)
    except FileNotFoundError:
        return None
    except SatchelError:  # a folder, a link, far too large: the run stays stopped
        return PauseFile()


def request_of(file: PauseFile, by: str) -> PauseRequested:
    """The request, by `by` unless the file names another person."""
    from ..journal.records import PauseRequested  # imports all kinds of records, which a look does not need

    return PauseRequested(
        reason=file.reason or "manual",
        by=file.by or by or "a person",
        mode=file.mode or "drain",
        resume=file.resume or "continue",
        until=file.until,
    )
