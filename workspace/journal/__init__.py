"""The journal: what happened, in segments of records, written in groups that are durable before anyone is told.

    naming.py     the segments' names
    reading.py    gives what there is behind a position, and mends
    segment.py    finds what is good in a segment, cuts off a torn tail, refuses damage that no crash explains
    chain.py      reads as many segments as are needed, and compares them where they meet
    joints.py     looks at where all segments meet, as cheaply as it goes
    histories.py  names the files that belong together where copies of a run were woven into one
    writing.py    `Journal` collects records and writes all that wait as one group
    appended.py   where a group goes if files can grow: to the end of the segment
    merging.py    what many short openings have left there, put into one
    objects.py    where it goes if they can't: into an object of its own, created exclusively
    fencing.py    how the writer of such objects keeps every earlier one out

An invariant holds it together: when a segment exists, everything in those before it is durable. So only the last one
can be torn, and only in its last group.
"""

from .histories import woven
from .joints import check_joints
from .naming import FOLDER, first_of, segment_path, segments, sizes
from .reading import Tail, expected, mend, read
from .writing import RECORD_BYTES, Journal

__all__ = [
    "FOLDER",
    "RECORD_BYTES",
    "Journal",
    "Tail",
    "check_joints",
    "expected",
    "first_of",
    "mend",
    "read",
    "segment_path",
    "segments",
    "sizes",
    "woven",
]
