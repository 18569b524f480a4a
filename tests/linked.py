"""Lines of a journal as the runtime writes them: each names the checksum of the one before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from satchel.workspace.journal.records import NO_CRC, Line, crc_of, written


class Linked(NamedTuple):
    lines: list[Line]
    data: bytes  # one segment of them


def linked(lines: Iterable[Line], prev: str = NO_CRC) -> Linked:
    """`lines`, the first of which follows the record with the crc `prev`."""
    found: list[Line] = []
    data = []
    for line in lines:
        row, as_read = written(replace(line, prev=prev))
        found.append(as_read)
        data.append(row)
        prev = as_read.crc
    return Linked(found, b"".join(data))


def last_crc(data: bytes) -> str:
    """Of the last line of a segment."""
    return crc_of(data.splitlines()[-1]) if data else NO_CRC
