"""The plan of a run: `todo.md` without its stamp, as text, as tasks, and as edits that can be recorded and replayed.

Pure: text in, text out. A person's version is merged as one more text. Other rooms read, stamp and write the file.
"""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import task_lines
    from .markdown import plainly
    from .match import Changes, Move, Pair, changes
    from .plan import Plan, Progress
    from .task_lines import Mark, Splice, Task, TaskRow, between
    from .three_way_merge import MergedPlan, conflict_sides, merge_plans, settle
