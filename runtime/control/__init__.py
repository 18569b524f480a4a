"""Everything that programs and people do to a run from outside. The command line calls it and prints the results.

opening     `open`: a handle on the workspace at a folder or URL; `below` finds one by its name below a root
handle      the methods of a handle; `looking` has those that only read. They call the modules below
standing    the status of a run; `listing`, of all runs below a folder; `overview` keeps that current for screens,
            and `latest` one run; `wording` puts a status in words; `forecasting`, how fast it is
blaming     which record set a value
checking    whether a workspace is sound; `survey` checks every file, and yields a `finding` for each error
making      a new workspace from a `template`; `serving` keeps all below a folder running, each in a process, and
            `pool` on the loop of a program
running     runs the agent in this process, `starting` in another one
history     the log, and the recorded result; `showing`, the run at any record;
            `comparing`, what differs, and steps
exporting   a zip file for other people; `files`, the readable ones of a run
events      what happens, as typed events: `streaming` runs and tells, `following` reads what any process has recorded
requests    pause and cancel; `withdrawing` takes a pause back; `emergency`, the stop that kills
going_back  the methods that go back: `rewinding` returns to an earlier record, `redoing` does an item again,
            `forking` starts a new run, and `replaying` does an item again there; `replayed` compares the two;
            `rehearsing` tries new code over a copy
recovering  repairs; `pruning` removes old history; `merging` resolves conflicts of files and the run
under_way   the calls that an active run performs now; `retrying`, those that wait to be tried again
questions   the open questions; `answering` answers them
sending     tasks and messages
hand_edits  the methods that edit files; `editing` checks and saves them, and `cutting` cuts a conversation off
place       the workspace as it was named; all modules use `waiting`, `takeover` and `storage`
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from ...workspace.base import counted, cut, duration, one_line, since, size
    from ...workspace.journal import Told, tell
    from ...workspace.state import ACTIVE, EXIT_CODES, OVER, STATES, State
    from ..engine import Foreseen
    from . import events, files
    from .answering import Answering, changes_of, say_what
    from .below import Below, is_run, leads_below
    from .blaming import Blame, Blamed
    from .checking import Checked, Tried
    from .comparing import Difference
    from .cutting import Cutting
    from .editing import Draft, Editing
    from .emergency import Undone, stop_all, undo_all
    from .files import RunFile, is_readable
    from .finding import Finding, of_error
    from .forecasting import Forecast, forecast
    from .forking import effects_since
    from .handle import Handle
    from .history import Result, Row
    from .item_calls import CallPair
    from .latest import Latest, Shot, records_before
    from .listing import ls
    from .log_filter import RECORD_TYPES
    from .making import Made, new, new_async
    from .merging import Merging
    from .opening import PATIENCE, open, open_all
    from .overview import Overview, Seen, SeenRun
    from .place import Place
    from .pool import Pool
    from .pruning import Pruned
    from .questions import Given, OpenQuestion
    from .recovering import Recovered, forgotten
    from .redoing import Redoing
    from .rehearsing import SEVERITY, Rehearsed, rehearse_all, rehearse_here
    from .replayed import Replayed
    from .replaying import changes, typed_changes
    from .requests import Stopping
    from .rewinding import Rewinding
    from .running import Ended
    from .sending import UNNAMED, Sent
    from .serving import serve
    from .showing import Message, Shown, conversation
    from .standing import Scheduled, Standing, before_a_start, by_need, wanted
    from .starting import Supervised
    from .streaming import stream
    from .template import Template, samples, typed_settings
    from .under_way import RunningCall
    from .withdrawing import Withdrawn, is_pausing
    from .wording import answered, colour, detail, failure_line, pause_lines
