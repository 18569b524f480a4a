"""The state that the records add up to: of the run, its agents and its scopes, and its checkpoints."""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from . import blobs, checkpoint, crashes, going_back, json_patch, prompts
    from .agent_state import CANCEL, ENDS_KEPT, EVERY, ROOT, SLEEP, AgentMoment, MessagesAt
    from .checkpoint import Listed, Newest, Written
    from .difference import Known
    from .going_back import LaterEffect
    from .history import History
    from .json_merge import ABSENT, merge
    from .json_patch import same
    from .parts import Fired, Pause, Status, TaskFile, Usage, folder_of_agent, is_of_item, scope_of_task
    from .prompts import prompt_text
    from .questions import DATA, DONE, GO_BACK, KEEP, REDO, Answered, Approval, Verdict, verdicts
    from .run_state import Moment
    from .scope_state import STUCK_AFTER, Answer, Kept, Past, Scope, is_done_again
    from .strict_merge import contradiction
