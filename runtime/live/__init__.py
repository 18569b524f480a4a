"""What a running agent works with besides its scopes: its data, its stop and what asks for one, signals, who watches
it, and notices to people."""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import limits, notices, reverify, supervisor_link
    from .data import CommittedChange, Contradiction, LiveState, Make, PlanEdit, ScopeCopy, first_state
    from .folder_watch import FOLDERS, SETTLE, AnswerSource, FolderWatch, Notice, PauseSource, SavedFiles
    from .limits import Limits, Share, shares_of, utc_now
    from .notices import Announcer, NoticeCheck
    from .pending_calls import PendingCalls, PendingLooks, Running
    from .reverify import Doubts, Outputs, put_question
    from .stopping import AgentStopped, Drain, ReplayTarget, StopRequests, Suspended, Suspension
    from .supervisor_link import Interruption, Word, hold, release
    from .watch import (
        BackupNews,
        LoopWatch,
        Tap,
        Watch,
        log_records,
        log_start,
        observed_by,
        observer_here,
        verification,
    )
