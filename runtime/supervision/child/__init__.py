"""A run's supervisor, the process that it starts, and the emergency stop of all its processes. The pipes between them
are in live/supervisor_link.py.

child.py        starts one child, talks to it and hears signals
sharing.py      processes that several runs share
keeper_process.py  what holds their model calls
deadline.py     when a child must have stopped, whatever has requested it
supervisor.py   drains, kills and restarts a child
kill.py         the emergency stop: writes it down, kills every process of a run, and checks that none is left
processes.py    identifies processes for certain, and kills them
aftermath.py    repairs the workspace after a kill
background.py   a supervisor that outlives the terminal
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from . import background
    from .background import Background
    from .child import FORCE_AFTER, RESTARTS, environment, interpreter
    from .keeper_process import KeeperProcess, check_installed, wants_keeper
    from .kill import StopResult, spared, stop
    from .sharing import ALONE, NO_KEEPER, Seat, SharedProcesses, ShareLimits
    from .supervisor import Order, supervise, supervise_aside
