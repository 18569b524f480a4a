"""A run's supervisor, and the process that it starts. The pipes between them are in live/supervisor_link.py.

child.py        starts one child, talks to it and hears signals
deadline.py     when a child must have stopped, whatever has requested it
supervisor.py   drains, kills and restarts a child
aftermath.py    repairs the workspace after a kill
background.py   a supervisor that outlives the terminal
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from . import background
    from .background import Background
    from .child import FORCE_AFTER, RESTARTS
    from .supervisor import Order, supervise
