"""Everything that programs and people do to a run from outside. The command line calls it and prints the results.

opening     `open`: a handle on the workspace at a folder or URL; `Below` finds one by its name below a root
handle      the methods of a handle; `looking` has those that only read, `hand_edits` those that edit, `going_back`
            those that go back. They call the modules below
standing    the status of a run; `overview`, of all runs below a folder, and kept current for screens; `latest`, of one
            run; `wording` puts a status in words; `under_way`, what runs now, what is tried again, and how fast it is
checking    whether a workspace is sound, file by file; a `finding` for each error
making      a new workspace from a template; `serving` keeps all below a folder running, each in a process, and
            `pool` on the loop of a program
running     runs the agent in this process, `starting` in another one
history     the log, the audit and the recorded result; `showing`, the run at any record; `comparing`, what differs,
            and which record set a value
carrying    moves a run, and exports it; `files`, the readable ones of a run
events      what happens, as typed events: `streaming` runs and tells, `following` reads what any process has recorded
requests    pause and cancel, and take a pause back; `emergency`, the stop that kills
rewinding   returns to an earlier record, or does an item again; `forking` starts a new run, and `replaying` does an
            item again there; `rehearsing` tries new code over a copy
recovering  repairs, removes old history, and resolves conflicts of files and the run
questions   the open questions; `answering` answers them
sending     tasks and messages
editing     checks and saves edits of files, and cuts a conversation off
place       the workspace as it was named, its storage, and waiting for it: all modules use it
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from ...workspace.base import counted, cut, duration, one_line, since, size
    from ...workspace.journal import Told, tell
    from ...workspace.state import ACTIVE, EXIT_CODES, OVER, STATES, State
    from ..engine import Foreseen
    from . import events, files
    from .answering import Answering, changes_of, say_revoked, say_what
    from .checking import Checked, Tried
    from .comparing import Blame, Blamed, Difference
    from .editing import Cutting, Draft, Editing
    from .emergency import Undone, stop_all, undo_all
    from .files import RunFile, is_readable
    from .finding import Finding, of_error
    from .forking import effects_since
    from .handle import Handle
    from .history import RECORD_TYPES, Result, Row
    from .latest import Latest, Shot, records_before
    from .making import Made, Template, new, new_async, samples, typed_settings
    from .opening import Below, is_run, leads_below, open, open_all
    from .overview import Overview, Seen, SeenRun, ls
    from .place import PATIENCE, Place
    from .pool import Pool
    from .questions import Given, OpenQuestion
    from .recovering import Merging, Pruned, Recovered, forgotten
    from .rehearsing import SEVERITY, Rehearsed, rehearse_all, rehearse_here
    from .replaying import CallPair, Replayed, changes, typed_changes
    from .requests import Stopping, Withdrawn, is_pausing
    from .rewinding import Redoing, Rewinding
    from .running import Ended
    from .sending import UNNAMED, Sent
    from .serving import serve
    from .showing import Message, Shown, conversation
    from .standing import Scheduled, Standing, before_a_start, by_need, wanted
    from .starting import Supervised
    from .streaming import stream
    from .under_way import Forecast, RunningCall, forecast
    from .wording import answered, colour, detail, failure_line, pause_lines
