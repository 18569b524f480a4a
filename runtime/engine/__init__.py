"""Run scopes: return recorded results, run other calls, record and commit."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import entry, items, model_calls, performing, scope_end
    from .context import AgentContext, Context
    from .effect_decorator import Effect, effect
    from .open_scope import PREVIEW, OpenCall, OpenScope, check_outside_steps, current_call
    from .parallel import ParallelScopes
    from .raised import RecordedError
    from .rehearsal import Rehearsal, RehearsalFinding
    from .scope import Returned, ScopeRun, returned
    from .session import Session
