"""The rest of a plan, for a model to read."""

from __future__ import annotations

from ..task import FINISHED
from .index import Reading


def remaining(reading: Reading) -> str:
    """The text without finished items and everything inside them.

    Headings, other text, notes, marks and ids stay, also headings with nothing left below them. Repeated blank lines at
    the gaps are reduced.
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
