"""The journal: everything that happened, in segments of records. A group of records is durable before it is shown.

    records/       the records, and how one is written as a line and read
    segment.py     one segment: its name, and its content; refuses damage that no crash explains
    reader.py      reads the records after a position, repairs the end, and tells the histories of a run apart whose
                   copies were put into one folder
    blobs.py       writes and reads results that are too large for a record
    writer.py      `Journal` takes secrets out of records, collects them, and writes all waiting ones as one group
    segment_log.py writes groups: to the end of the segment where files can grow; else each as an object, after a
                   fence that keeps earlier writers off
    pruning.py     removes old segments, and keeps what stays of their records for ever

Invariant: when a segment exists, everything in those before it is durable. So only the last one can be torn, and only
in its last group.
"""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from . import blobs
    from .blobs import Kept, filled, may_name
    from .pruning import (
        Gone,
        OldSegments,
        Own,
        conversation,
        encode_kept,
        gone,
        kept_lines,
        kept_of,
        kept_path,
        left_behind,
        old_bytes,
        old_segments,
        remove_old,
        roll_kept,
    )
    from .reader import Tail, check_joints, expected, mend, once, read, woven
    from .segment import (
        CHECKPOINTS,
        FOLDER,
        checkpoint_position,
        first_kept,
        first_of,
        kept_files,
        new_opening,
        segment_of,
        segment_path,
        segments,
        sizes,
    )
    from .segment_log import SegmentObjects, check_newest, fence
    from .writer import RECORD_BYTES, Journal
