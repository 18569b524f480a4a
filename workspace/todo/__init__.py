"""The plan of a run: `todo.md` without its stamp, as text, as tasks, and as edits that can be recorded and replayed.

Pure: text in, text out. A person's version is merged as one more text. Other rooms read, stamp and write the file.
"""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from .merge.conflict import PlanConflict
    from .merge.diff import Changes, Pair, changes
    from .merge.marks import settle
    from .merge.merge import MergedPlan, merge_plans
    from .plan import Plan, Progress
    from .splice import Splice, between
    from .task import Mark, Row, Task
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "merge.conflict": ("PlanConflict",),
            "merge.diff": ("Changes", "Pair", "changes"),
            "merge.marks": ("settle",),
            "merge.merge": ("MergedPlan", "merge_plans"),
            "plan": ("Plan", "Progress"),
            "splice": ("Splice", "between"),
            "task": ("Mark", "Row", "Task"),
        },
    )

__all__ = [
    "Changes",
    "Mark",
    "MergedPlan",
    "Pair",
    "Plan",
    "PlanConflict",
    "Progress",
    "Row",
    "Splice",
    "Task",
    "between",
    "changes",
    "merge_plans",
    "settle",
]
