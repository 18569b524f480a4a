"""`satchel serve`: many workspaces, a few at a time.

run_server.py  starts the workspaces that may be started, as many at a time as there are cores
isolation.py   in which process a run runs: one of its own, or one that several share
lookout.py     decides what is due now, for those who start it, and remembers which runs of many rest
due_index.py   keeps what rests, for the next process and for lists of runs
known_run.py   one of these: whether it may be started, the tasks of its schedule, the claim to start it
fair_order.py  decides which of those that are due start next
census.py      what looks have found, in numbers
roots.py       finds workspaces below a folder or URL
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .census import COUNTED, Census, CensusNumbers, RunFigures, SightedRun, figures_of
    from .due_index import DueIndex, RestingRow, proof_of
    from .fair_order import FairOrder
    from .isolation import Isolate, may_share, shared_processes, usable_cores
    from .known_run import Going, Known, RowOf
    from .lookout import Lookout, ServeEvent
    from .roots import FolderRoot, Root, RootSignature, UrlRoot, uncollected
    from .run_server import Server, ServeResult, serve
