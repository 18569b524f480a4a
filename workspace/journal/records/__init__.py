"""One line of the journal: what kinds of record there are, what each says, and how a line is written and read.

    record_base.py  what every record is
    work.py         what a run does: its processes, its scopes and plan, its steps and effects
    people.py       what people settle: questions, edits, returns, pauses
    line.py         the line around a record

A line is one JSON object: `seq`, `prev` (the crc of the record before it) or, if it is not the first of its group,
`commit` (the seq of that one), `at`, `epoch`, `opening` (the nonce of the opening that wrote it), then `type` and that
type's fields, and last `crc`. `at`, `epoch` and `opening` are left out where they are those of the line before, but for
the first line of a segment. `crc` is the CRC-32 of the line without it; of a line without `prev` it begins with the
`crc` of the line before. So every line depends on all before it.
"""

# mypy: implicit-reexport

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
from .record_base import NOTHING, Count, Failure, Key, OfCall, Patch, Record, SavedFile, check_json, check_time
from .work import (
    FORMAT,
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    Closed,
    Configured,
    EndStatus,
    Fenced,
    FileWritten,
    Input,
    Lineage,
    Message,
    Migrated,
    Occasion,
    Opened,
    Output,
    PartialPromoted,
    PlanChanged,
    Pruned,
    Resource,
    RestoredFrom,
    Saved,
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
