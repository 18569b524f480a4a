"""Where groups go if files can grow: to the end of the current segment."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Damaged
from ..store import Log, Store
from .merging import merge
from .naming import segment_path
from .records.line import Line

SEGMENT_BYTES = 1 << 20
"""After this size a new segment begins."""


class AppendedSegments:
    """The segments of one opening."""

    growing = 0

    def __init__(self, store: Store):
        self._store = store
        self._log: Log | None = None
        self._log_bytes = 0

    @property
    def is_full(self) -> bool:
        """The next group begins a segment."""
        return self._log is None or self._log_bytes >= SEGMENT_BYTES

    def write(self, lines: Sequence[Line], data: bytes) -> None:
        """One write, one sync."""
        try:
            if self._log is None or self.is_full:
                self.close()
                self._log, self._log_bytes = self._store.create_log(segment_path(lines[0].seq), data), 0
            else:
                self._log.append(data)
            self._log_bytes += len(data)
        except FileExistsError as error:
            raise Damaged(
                "a file or folder is in the place of the next records",
                path=segment_path(lines[0].seq),
                why="another process wrote it, or a person made a folder with this name",
                remedy="make sure that no other process runs this workspace, move this one away, and run again",
            ) from error

    def roll_up(self) -> None:
        """A segment is one file already; those of earlier openings may be many."""
        merge(self._store)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
