"""Earlier moments of a run: look at them, compare them, return to them, and do them again.

past              the run as it was at any record, what two moments differ in, what the items have done, which record
                  set a value, and what agents and models have said, a page at a time
rewind            returns to an earlier record, does an item again, or starts a new run from an earlier moment
replay            does one item again in a fork, and compares it with the first time
rehearsal_report  tries new code over a copy, and says what would differ
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import past, rewind
    from .past import (
        Blame,
        Blamed,
        Conversation,
        ConversationMessage,
        Difference,
        ShowResult,
        Side,
        logs_of,
        message_at,
        messages_of,
    )
    from .rehearsal_report import SEVERITY, RehearsalResult, rehearse, rehearse_all, rehearse_here
    from .replay import CallPair, Replay, ReplayOptions, ReplayResult, Text, changes, typed_changes
    from .rewind import RedoResult, RewindResult, effects_since
