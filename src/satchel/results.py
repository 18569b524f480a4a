"""What the functions and methods of Satchel return, take and report, for annotations."""

from .workspace.base.lazy import deferred

if not deferred(__name__):
    from .runtime.agent import Migration
    from .runtime.api import (
        AnswerResult,
        Blame,
        CheckResult,
        Difference,
        Draft,
        EditResult,
        LogRow,
        MergeResult,
        MessageCut,
        NewWorkspace,
        OpenQuestion,
        PauseResult,
        PruneResult,
        RecoveryResult,
        RedoResult,
        RehearsalFinding,
        RehearsalResult,
        ReplayResult,
        Result,
        RewindResult,
        RunFile,
        RunFiles,
        RunHistory,
        RunResult,
        RunStatus,
        SendResult,
        ShowResult,
        StorageCheck,
        SupervisionResult,
        WithdrawResult,
    )
    from .runtime.limits import NoticeCheck
    from .runtime.live import Watch
    from .runtime.supervision.child import Background
    from .runtime.supervision.emergency import StopResult
    from .runtime.supervision.serve import ServeEvent
    from .workspace.history import StepHistory
    from .workspace.inspect import ExportResult, Report
    from .workspace.journal.records import ApprovalAsked, Doubt
    from .workspace.lifecycle import Truncation
    from .workspace.state import LaterEffect
    from .workspace.store import Store
    from .workspace.transfer import ForkResult, TransferResult
    from .workspace.views import RecoveryMarker

__all__ = [
    "AnswerResult",
    "ApprovalAsked",
    "Background",
    "Blame",
    "CheckResult",
    "Difference",
    "Doubt",
    "Draft",
    "EditResult",
    "ExportResult",
    "ForkResult",
    "LaterEffect",
    "LogRow",
    "MergeResult",
    "MessageCut",
    "Migration",
    "NewWorkspace",
    "NoticeCheck",
    "OpenQuestion",
    "PauseResult",
    "PruneResult",
    "RecoveryMarker",
    "RecoveryResult",
    "RedoResult",
    "RehearsalFinding",
    "RehearsalResult",
    "ReplayResult",
    "Report",
    "Result",
    "RewindResult",
    "RunFile",
    "RunFiles",
    "RunHistory",
    "RunResult",
    "RunStatus",
    "SendResult",
    "ServeEvent",
    "ShowResult",
    "StepHistory",
    "StopResult",
    "StorageCheck",
    "Store",
    "SupervisionResult",
    "TransferResult",
    "Truncation",
    "Watch",
    "WithdrawResult",
]
