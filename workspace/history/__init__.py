"""Read any moment of a run, and what led to it. Changes nothing, takes nothing, runs nothing."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .blame import BlamedItem, BlamedValue, Origin, SaidBy, data_origins, message_origins, plan_origins
    from .call_history import Call, FailedAttempt, StepHistory, Work, step_history
    from .difference import (
        CallChange,
        Compared,
        DataChange,
        MessageChange,
        PlanChange,
        compared,
        data_changes,
        message_changes,
        same_outcome,
    )
    from .moments import (
        LATEST,
        Records,
        Story,
        check_kept,
        conversations,
        gone,
        kept_from,
        moment_at,
        no_such_item,
        plain,
        read,
        records_of,
        seq_of,
        steadily,
        story,
    )
