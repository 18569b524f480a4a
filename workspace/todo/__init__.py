"""The plan of a run: `todo.md` without its stamp, as text, as tasks, and as edits that can be kept and replayed.

Pure: text in, text out. Reading, stamping, merging and writing the file happen elsewhere.
"""

from .plan import Plan, Progress
from .splice import Splice
from .task import Mark, Task

__all__ = ["Mark", "Plan", "Progress", "Splice", "Task"]
