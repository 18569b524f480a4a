"""What is left of a plan, to be read by a model."""

from __future__ import annotations

from ..task import FINISHED
from .index import Reading


def remaining(reading: Reading) -> str:
    """The text without the lines of finished items, each with all that is inside it.

    Headings, other prose, notes, marks and ids stay as they are, headings with nothing left below them too. Where
    something was left out, blank lines don't pile up.
    """
    kept: list[str] = []
    position = 0
    for row, mark in zip(reading.rows, reading.tree.marks, strict=True):
        if mark in FINISHED and row.line >= position:
            kept += reading.lines[position : row.line]
            position = row.end
            if not kept or not kept[-1].strip():
                while position < len(reading.lines) and not reading.lines[position].strip():
                    position += 1
    return "".join(kept + reading.lines[position:])
