"""The journal: everything that happened, in segments of records. A group of records is durable before it is shown.

    records.py     what every record is, and the records of what a run does
    people.py      the records of what people settle: questions, edits, returns, pauses
    line.py        one line: how a record is written and read
    segment.py     the names and the content of segments; refuses damage that no crash explains. Removes old segments,
                   and keeps what stays of their records for ever
    reader.py      reads the records after a position, repairs the end, and tells the histories of a run apart whose
                   copies were put into one folder
    blobs.py       writes and reads results that are too large for a record
    writer.py      `Journal` takes secrets out of records, collects them, and writes all waiting ones as one group
    segment_log.py writes groups: to the end of the segment where files can grow; else each as an object, after a
                   fence that keeps earlier writers off

Invariant: when a segment exists, everything in those before it is durable. So only the last one can be torn, and only
in its last group.
"""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import blobs
    from .blobs import Kept, filled, may_name
    from .line import (
        FIRST,
        NO_CRC,
        AnyRecord,
        BadLine,
        Before,
        Epoch,
        Line,
        LineReader,
        as_it_says,
        check_json,
        check_time,
        crc_of,
        encode,
        full,
        is_whole,
        now,
        parse,
        parse_each,
        whole,
        written,
    )
    from .people import (
        ApprovalAnswered,
        ApprovalAsked,
        ApprovalRevoked,
        Back,
        Doubt,
        Edited,
        Forced,
        MessageEdit,
        Paused,
        PauseLate,
        PauseRequested,
        Resolved,
        Resumed,
        Rewound,
        StepEdit,
    )
    from .reader import Tail, check_joints, expected, mend, once, read, woven
    from .records import (
        FORMAT,
        NOTHING,
        AgentBegun,
        AgentEnded,
        AnswersGrown,
        Closed,
        Configured,
        Count,
        EndStatus,
        Failure,
        Fenced,
        FileWritten,
        Input,
        Key,
        Lineage,
        Message,
        Migrated,
        Occasion,
        OfCall,
        Opened,
        Output,
        PartialPromoted,
        Patch,
        PlanChanged,
        Pruned,
        Record,
        ResourceChanged,
        RestoredFrom,
        Saved,
        SavedFile,
        ScopeBegun,
        ScopeCommitted,
        ScopeFailed,
        Spent,
        StepCompleted,
        StepFailed,
        StepProgress,
        StepRetry,
        StepStarted,
        TaskDone,
        TaskTaken,
        Uncalled,
        code_version,
    )
    from .segment import (
        CHECKPOINTS,
        FOLDER,
        Gone,
        OldSegments,
        Own,
        checkpoint_position,
        conversation,
        encode_kept,
        first_kept,
        first_of,
        gone,
        kept_files,
        kept_lines,
        kept_of,
        kept_path,
        left_behind,
        new_opening,
        old_bytes,
        old_segments,
        remove_old,
        roll_kept,
        segment_of,
        segment_path,
        segments,
        sizes,
    )
    from .segment_log import SegmentObjects, check_newest, fence
    from .writer import RECORD_BYTES, Journal
