"""Lines of a journal as the runtime writes them: each follows from the one before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from satchel.workspace.journal import NO_CRC, Line, LineReader, crc_of, written


class Linked(NamedTuple):
    lines: list[Line]
    data: bytes  # one segment of them


def linked(lines: Iterable[Line], prev: str = NO_CRC) -> Linked:
    """`lines` of one segment, the first of which follows the record with the crc `prev`."""
    found: list[Line] = []
    data = []
    for line in lines:
        row, as_read = written(replace(line, prev=prev), found[-1] if found else None)
        found.append(as_read)
        data.append(row)
        prev = as_read.crc
    return Linked(found, b"".join(data))


def parsed(data: bytes) -> list[Line]:
    """The lines of a segment."""
    reader = LineReader()
    return [reader.parse(row) for row in data.splitlines()]


def last_crc(data: bytes) -> str:
    """Of the last line of a segment."""
    return crc_of(data.splitlines()[-1]) if data else NO_CRC
