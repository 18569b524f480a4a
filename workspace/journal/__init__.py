"""The journal: what happened, in segments of records, written in groups that are durable before anyone is told.

    records/       what one line says, and how it is written and read
    naming.py      the names of segments and checkpoints
    reader.py      gives what there is behind a position, and mends
    segment.py     finds what is good in a segment, cuts off a torn tail, refuses damage that no crash explains
    chain.py       reads as many segments as are needed, and compares them where they meet
    joints.py      looks at where all segments meet, as cheaply as it goes
    histories.py   names the files that belong together where copies of a run were woven into one
    writer.py      `Journal` collects records and writes all that wait as one group
    append_log.py  where a group goes if files can grow: to the end of the segment
    merging.py     what many short openings have left there, put into one
    object_log.py  where it goes if they can't: into an object of its own, created exclusively
    fencing.py     how the writer of such objects keeps every earlier one out

An invariant holds it together: when a segment exists, everything in those before it is durable. So only the last one
can be torn, and only in its last group.
"""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from .fencing import check_newest, fence
    from .histories import woven
    from .joints import check_joints
    from .naming import CHECKPOINTS, FOLDER, checkpoint_position, first_of, new_opening, segment_path, segments, sizes
    from .object_log import SegmentObjects
    from .reader import Tail, expected, mend, read
    from .writer import RECORD_BYTES, Journal
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "fencing": ("check_newest", "fence"),
            "histories": ("woven",),
            "joints": ("check_joints",),
            "naming": (
                "CHECKPOINTS",
                "FOLDER",
                "checkpoint_position",
                "first_of",
                "new_opening",
                "segment_path",
                "segments",
                "sizes",
            ),
            "object_log": ("SegmentObjects",),
            "reader": ("Tail", "expected", "mend", "read"),
            "writer": ("Journal", "RECORD_BYTES"),
        },
    )

__all__ = [
    "CHECKPOINTS",
    "FOLDER",
    "RECORD_BYTES",
    "Journal",
    "SegmentObjects",
    "Tail",
    "check_joints",
    "check_newest",
    "checkpoint_position",
    "expected",
    "fence",
    "first_of",
    "mend",
    "new_opening",
    "read",
    "segment_path",
    "segments",
    "sizes",
    "woven",
]
