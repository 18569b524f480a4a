"""Run scopes: return recorded results, run other calls, record and commit."""

# mypy: implicit-reexport

from ...workspace.base.lazy import on_first_use

with on_first_use(__name__):
    from . import entry, failing, items, recording, reverify, uplink
    from .context import AgentContext, Context
    from .doubts import Doubts, put_question
    from .effect_decorator import Effect, effect
    from .lanes import Lanes
    from .observing import observed_by
    from .only import Only
    from .open_scope import PREVIEW, Call, OpenScope, check_outside_steps, current_call
    from .own_step import OwnStep
    from .raised import RecordedError
    from .rehearsal import Foreseen, Rehearsal
    from .results import Returned, returned
    from .scope import ScopeRun
    from .session import Session
    from .signals import Interruption, hold, release
    from .stopping import Stopping, Suspended, Suspension
    from .uplink import Word
    from .watch import Tap, Watch
