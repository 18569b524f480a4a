"""Processes that watch over other processes: the supervisor of a run, `satchel serve` with many of them, and the
emergency stop.

supervisor.py   drains, kills and restarts the process of a run
child.py        starts it, talks to it, and kills it with its session; starts a supervisor that outlives the terminal;
                the log of both. The pipes to a child are in live/supervisor_link.py
sharing.py      processes that several runs share, and the keeper of their model calls
forced_stop.py  when a process must have stopped, whatever has requested it; repairs the workspace after a kill
kill.py         the emergency stop: writes it down, kills every process of a run, and checks that none is left

run_server.py   starts the workspaces that may be started, as many at a time as there are cores
lookout.py      decides what is due now and which of it starts next, and remembers which runs of many rest
known_run.py    one of these: whether it may be started, the tasks of its schedule, the claim to start it
census.py       what looks have found, in numbers
roots.py        finds workspaces below a folder or URL, and keeps what rests, for the next process and for lists of runs
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import child
    from .census import Census, CensusNumbers, RunFigures, SightedRun, figures_of
    from .child import FORCE_AFTER, RESTARTS, Background, environment, interpreter
    from .kill import StopResult, spared, stop
    from .known_run import Known
    from .lookout import FairOrder, Lookout, ServeEvent
    from .roots import DueIndex, FolderRoot, RestingRow, Root, RootSignature, UrlRoot, proof_of, uncollected
    from .run_server import Server, ServeResult, serve
    from .sharing import (
        ALONE,
        NO_KEEPER,
        Isolate,
        KeeperProcess,
        SharedProcesses,
        check_installed,
        may_share,
        shared_processes,
        usable_cores,
        wants_keeper,
    )
    from .supervisor import Order, supervise, supervise_aside
