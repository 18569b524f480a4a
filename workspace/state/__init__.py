"""The state that the records add up to: of the run, its agents and its scopes, and its checkpoints."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import checkpoint, earlier_moment, json_patch, prompts
    from .agent_state import CANCEL, ENDS_KEPT, EVERY, ROOT, SLEEP, AgentMoment, crash_suspects, folder_of_agent
    from .checkpoint import Listed, Newest, PastMoments, WrittenCheckpoint
    from .earlier_moment import LaterEffect
    from .json_patch import ABSENT, KnownText, contradiction, same
    from .prompts import prompt_text
    from .question_state import (
        DATA,
        DONE,
        GO_BACK,
        KEEP,
        NONE_SINCE,
        REDO,
        Approval,
        DoubtVerdict,
        RecordedAnswer,
        verdicts,
    )
    from .run_state import Fired, Moment, Pause, TaskFile, Usage
    from .scope_state import (
        FILES,
        MESSAGES,
        STUCK_AFTER,
        EarlierAnswer,
        FileState,
        LogPlace,
        MessagesAt,
        Past,
        RowLog,
        Scope,
        is_done_again,
        is_of_item,
        is_of_task,
        log_key,
        scope_of_task,
    )
    from .statuses import ACTIVE, EXIT_CODES, OVER, STATES, State, Status, Tone, after, tone
