"""What acts have done, for the pages after them."""

from __future__ import annotations

import secrets
import threading
from typing import NamedTuple

from starlette.requests import Request

_MOST = 500


class Note(NamedTuple):
    """What an act has done, for the page after it."""

    lines: tuple[str, ...]
    is_bad: bool = False


class Notes:
    """The newest notes, by a name that only the browser knows that has acted. They end with the process."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._lock = threading.Lock()  # protects `_notes`: acts run in threads

    def keep(self, note: Note) -> str:
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._notes[name] = note
            while len(self._notes) > _MOST:
                del self._notes[next(iter(self._notes))]
        return name

    def of(self, request: Request) -> Note | None:
        """The note that the request names."""
        return self._notes.get(request.query_params.get("note", ""))
