"""The plan of a run: `todo.md` without its stamp, as text, as tasks, and as edits that can be kept and replayed.

Pure: text in, text out; a person's version is merged as one more text. Reading, stamping and writing the file happen
elsewhere.
"""

from .changes import Changes, Pair, changes
from .conflicts import PlanConflict
from .merging import MergedPlan
from .merging import merge as merge_plans
from .plan import Plan, Progress
from .settling import settle
from .splice import Splice, between
from .task import Mark, Row, Task

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
