"""Read any moment of a run, and what led to it. Changes nothing, takes nothing, runs nothing."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from .blame import BlamedItem, BlamedValue, Origin, data_origins, line_origins, message_origins, plan_origins
    from .call_history import Call, FailedAttempt, StepHistory, Work, step_history
    from .call_records import CallDetail, FailedCall, HumanAnswer, call_detail, call_place, calls_of, failed_call
    from .difference import (
        CallChange,
        DataChange,
        FileChange,
        MessageChange,
        PlanChange,
        compared,
        data_changes,
        message_changes,
        same_outcome,
        text_changes,
    )
    from .moments import (
        LATEST,
        Records,
        Story,
        check_kept,
        conversations,
        kept_from,
        moment_at,
        named_so,
        plain,
        read,
        records_of,
        seq_of,
        steadily,
        story,
    )
    from .time_and_cost import (
        CallSpan,
        Cost,
        CostReport,
        GapKind,
        ItemCost,
        ItemSpan,
        PartKind,
        RunningSpan,
        RunTiming,
        TimeGap,
        cost_report,
        run_timing,
    )
