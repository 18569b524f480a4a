"""`satchel.open`, and everything that programs and people do to a run from outside. The command line and the other
faces call it and print the results. It hands on what the rooms below it offer: `status`, `launch`, `history`.

finder      `open`: a handle on the workspace at a folder or URL; `Below` finds one by its name below a root
handle      a handle: `handle_history` has its methods for the past of a run
latest      one run, kept current for screens
stops       pause and cancel, and take a pause back; the emergency stop
answers     answers questions
handle_files  the files of a run, to read and to edit as a person does; tasks and messages for its inbox
repair      repairs, removes old history, and resolves conflicts of files and the run
transport   moves a run and copies it, lets copies follow, and goes on from one
held_workspace  `hold`: a program is the one writer of a workspace, without an agent function; and reading such a one
hold_opening  how a held workspace is opened and closed, and how edits of its files by people are taken
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from ...workspace.state import ACTIVE, EXIT_CODES, OVER, STATES, State
    from ..engine import RehearsalFinding
    from ..history import (
        SEVERITY,
        Blame,
        Blamed,
        CallPair,
        Conversation,
        ConversationMessage,
        Difference,
        RedoResult,
        RehearsalResult,
        ReplayResult,
        RewindResult,
        ShowResult,
        changes,
        effects_since,
        logs_of,
        message_at,
        messages_of,
        rehearse_all,
        rehearse_here,
        typed_changes,
    )
    from ..launch import (
        DueLook,
        DueRun,
        NewWorkspace,
        Pool,
        RunResult,
        Setting,
        SupervisionResult,
        Template,
        due,
        new,
        new_aside,
        new_async,
        samples,
        serve,
        settings_of,
        stream,
        typed_settings,
        value_of,
    )
    from ..status import (
        BY_NEED,
        ORDERS,
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
        ProcessLine,
        ProcessLog,
        Result,
        RunningCall,
        RunQuery,
        RunStatus,
        Scheduled,
        Seen,
        SeenRun,
        StorageCheck,
        agent_of,
        before_a_start,
        by_need,
        events,
        forecast,
        ls,
        ls_whole,
        of_error,
        wanted,
    )
    from .answers import AnswerResult, changes_of, say_what
    from .finder import Below, is_run, leads_below, new_place, open, open_all
    from .handle import Handle
    from .handle_files import UNNAMED, Draft, EditResult, MessageCut, RunFile, RunFiles, SendResult, is_readable
    from .handle_history import RunHistory
    from .held_workspace import FileEntry, Held, HeldFile, Row, hold, remove
    from .latest import Latest, Shot, records_before
    from .repair import MergeResult, PruneResult, RecoveryResult, forgotten
    from .stops import PauseResult, WithdrawResult, is_pausing, stop_all, undo_all
    from .transport import BackupEvent, Replication, RunBackup
