"""The journal: what happened, in segments of records, written in groups that are durable before anyone is told.

    naming.py     the segments' names
    reading.py    finds what is good, cuts off a torn tail, refuses damage that no crash explains, and mends
    writing.py    `Journal` collects records and writes all that wait as one group
    appended.py   where a group goes if files can grow: to the end of the segment
    merging.py    what many short openings have left there, put into one
    objects.py    where it goes if they can't: into an object of its own, created exclusively
    fencing.py    how the writer of such objects keeps every earlier one out

An invariant holds it together: when a segment exists, everything in those before it is durable. So only the last one
can be torn, and only in its last group.
"""

from .naming import FOLDER, first_of, segment_path, segments, sizes
from .reading import Tail, expected, mend, read
from .writing import RECORD_BYTES, Journal

__all__ = [
    "FOLDER",
    "RECORD_BYTES",
    "Journal",
    "Tail",
    "expected",
    "first_of",
    "mend",
    "read",
    "segment_path",
    "segments",
    "sizes",
]
