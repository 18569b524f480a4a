"""`@step` and `@effect`, and the scopes that call them: return recorded results, run other calls, record and commit."""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import entry, model_calls, performing
    from .context import AgentContext, Context
    from .decorators import Effect, effect, step
    from .open_scope import PREVIEW, OpenCall, OpenScope, check_outside_steps, current_call
    from .parallel import ParallelScopes
    from .scope import Rehearsal, RehearsalFinding, Returned, ScopeRun, check_not_stuck, returned
    from .session import Session
