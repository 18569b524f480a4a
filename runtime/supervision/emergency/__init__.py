"""The emergency stop.

processes.py  identifies processes for certain, and kills them
kill.py       writes the stop down, kills every process of a run, and checks that none is left
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .kill import StopResult, spared, stop
