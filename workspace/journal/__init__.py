"""The journal: everything that happened, in segments of records. A group of records is durable before it is shown.

    records/       the records, and how one is written as a line and read
    naming.py      the names of segments and checkpoints
    reader.py      reads the records after a position, and repairs the end
    segment.py     reads one segment, cuts off a torn tail, refuses damage that no crash explains
    chain.py       reads the needed segments, and compares them where they meet
    rows.py        reads the rows of all segments, each record once, also of a damaged journal
    joints.py      quickly checks where all segments meet
    histories.py   names the files that belong together, if copies of a run were put into one folder
    blobs.py       reads content that is too large for a record
    redaction.py   takes secrets out of records
    writer.py      `Journal` collects records and writes all waiting ones as one group
    append_log.py  writes groups where files can grow: to the end of the segment
    merging.py     merges the small segments of many short openings
    pruning.py     removes old segments
    kept.py        what stays of their records for ever
    object_log.py  writes groups where files can't grow: each as an object, created exclusively
    fencing.py     excludes every earlier writer of such objects
    telling.py     each record in one line, for people

Invariant: when a segment exists, everything in those before it is durable. So only the last one can be torn, and only
in its last group.
"""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from .blobs import BLOB_NAME, BLOBS, blob, filled, may_name
    from .fencing import check_newest, fence
    from .histories import woven
    from .joints import check_joints
    from .kept import conversation, encode_kept, kept_lines, kept_path
    from .naming import (
        CHECKPOINTS,
        FOLDER,
        checkpoint_position,
        first_kept,
        first_of,
        kept_files,
        new_opening,
        segment_path,
        segments,
        sizes,
    )
    from .object_log import SegmentObjects
    from .pruning import (
        Gone,
        OldSegments,
        Own,
        gone,
        kept_of,
        left_behind,
        old_bytes,
        old_segments,
        remove_old,
        roll_kept,
    )
    from .reader import Tail, expected, mend, read
    from .rows import once
    from .telling import Told, tell
    from .writer import RECORD_BYTES, Journal
