"""`satchel.open`, and everything that programs and people do to a run from outside. The command line and the other
faces call it and print the results. It hands on what the rooms below it offer: `status`, `launch` and `history`.

finder      `open`: a handle on the workspace at a folder or URL; `Below` finds one by its name below a root
handle      a handle: `handle_history` has its methods for the past of a run, `handle_files` those for its files
latest      one run, kept current for screens
stops       pause and cancel, and take a pause back; the emergency stop
answers     answers questions
mail        tasks and messages
file_edits  checks and saves edits of files, and cuts a conversation off
repair      repairs, removes old history, and resolves conflicts of files and the run
transport   moves a run, copies it, and exports it
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from ...workspace.state import ACTIVE, EXIT_CODES, OVER, STATES, State
    from ..engine import RehearsalFinding
    from ..history import (
        SEVERITY,
        Blame,
        Blamed,
        CallPair,
        ConversationMessage,
        Difference,
        RedoResult,
        RehearsalResult,
        ReplayResult,
        RewindResult,
        ShowResult,
        changes,
        conversation,
        effects_since,
        rehearse_all,
        rehearse_here,
        typed_changes,
    )
    from ..launch import (
        NewWorkspace,
        Pool,
        RunResult,
        SupervisionResult,
        Template,
        new,
        new_async,
        samples,
        serve,
        stream,
        typed_settings,
    )
    from ..status import (
        PATIENCE,
        RECORD_TYPES,
        CheckResult,
        Finding,
        Forecast,
        Given,
        LogRow,
        OpenQuestion,
        Overview,
        Place,
        Result,
        RunFile,
        RunningCall,
        RunStatus,
        Scheduled,
        Seen,
        SeenRun,
        StorageCheck,
        before_a_start,
        by_need,
        events,
        forecast,
        is_readable,
        ls,
        of_error,
        run_files,
        wanted,
    )
    from .answers import AnswerResult, changes_of, say_revoked, say_what
    from .file_edits import Draft, EditResult, MessageCut
    from .finder import Below, is_run, leads_below, open, open_all
    from .handle import Handle
    from .handle_files import RunFiles
    from .handle_history import RunHistory
    from .latest import Latest, Shot, records_before
    from .mail import UNNAMED, SendResult
    from .repair import MergeResult, PruneResult, RecoveryResult, forgotten
    from .stops import PauseResult, Undone, WithdrawResult, is_pausing, stop_all, undo_all
