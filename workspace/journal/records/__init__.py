"""One line of the journal: what kinds of record there are, what each says, and how a line is written and read.

    base.py        what every record is
    process.py     the processes that have the workspace
    calls.py       steps and effects
    work.py        scopes, the plan, sub-agents, the inbox
    questions.py   what only a person can settle
    edits.py       what people change
    pauses.py      pauses
    line.py        the line around a record

A line is one JSON object: `seq`, `prev` (the crc of the record before it) or, if it is not the first of its group,
`commit` (the seq of that one), `at`, `epoch`, `opening` (the nonce of the opening that wrote it), then `type` and that
type's fields, and last `crc`. `at`, `epoch` and `opening` are left out where they are those of the line before, but for
the first line of a segment. `crc` is the CRC-32 of the line without it; of a line without `prev` it begins with the
`crc` of the line before. So every line depends on all before it.
"""

# mypy: implicit-reexport

from .base import NOTHING, Count, Failure, Key, OfCall, Patch, Record, check_json, check_time
from .calls import PartialPromoted, StepCompleted, StepFailed, StepProgress, StepRetry, StepStarted
from .edits import Edited, MessageEdit, Rewound, StepEdit
from .line import (
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
    parse_if_whole,
    whole,
    written,
)
from .pauses import Forced, Paused, PauseLate, PauseRequested, Resumed
from .process import (
    FORMAT,
    Closed,
    Configured,
    EndStatus,
    Fenced,
    Input,
    Lineage,
    Occasion,
    Opened,
    Pruned,
    Resource,
    Saved,
    Spent,
    code_version,
)
from .questions import ApprovalAnswered, ApprovalAsked, ApprovalRevoked, Back, Doubt, Resolved
from .work import (
    AgentBegun,
    AgentEnded,
    Message,
    Migrated,
    Output,
    PlanChanged,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    TaskDone,
    TaskTaken,
    Uncalled,
)
