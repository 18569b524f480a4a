"""The plan of a run: `todo.md` without its stamp, as text, as tasks, and as edits that can be recorded and replayed.

Pure: text in, text out. A person's version is merged as one more text. Other rooms read, stamp and write the file.
"""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from . import splice
    from .markdown.parse import plainly
    from .merge.conflict import PlanConflict
    from .merge.diff import Changes, Move, Pair, changes
    from .merge.marks import settle
    from .merge.merge import MergedPlan, merge_plans
    from .plan import Plan, Progress
    from .splice import Splice, between
    from .task import Mark, Row, Task
