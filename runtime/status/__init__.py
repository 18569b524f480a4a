"""What a run is now, from its files: nothing here changes the workspace or runs its code.

place       the workspace as it was named, its storage, and waiting for it, which a method says once for threads and
            event loops: all rooms from here on use it
run_status  the status of one run
overview    the status of all runs below a folder, also kept current for screens, of those that rest from the index that
            `serve` keeps; which of them a person asks for, and in which order
activity    what runs now, what is tried again, how fast the plan is done, the times of the schedule, and the open
            questions with what a person has typed into their files
log         the records, the audit, and the recorded result; and what its processes have printed
events      what happens, as typed events, read from what any process has recorded
check       whether a workspace is sound, file by file; a `Finding` for each error
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import check, events, log, run_status
    from .activity import (
        Forecast,
        Given,
        OpenQuestion,
        Retrying,
        RunningCall,
        Scheduled,
        forecast,
        plain_answer,
        questions_of,
        running,
    )
    from .check import CheckResult, Finding, StorageCheck, of_error
    from .events import Event, RunEnded, Teller
    from .log import RECORD_TYPES, LogRow, ProcessLine, ProcessLog, Result, value_of
    from .overview import (
        BY_NEED,
        ORDERS,
        Overview,
        RunQuery,
        Seen,
        SeenRun,
        agent_of,
        ls,
        ls_whole,
        progress_of,
        resting_row,
        usage_of,
    )
    from .place import (
        PATIENCE,
        REMOTE_LOOK,
        Execution,
        Method,
        Place,
        Steps,
        at_once,
        check_free,
        check_main_thread,
        describe_holder,
        holder_to_replace,
        in_a_thread,
        in_both_ways,
        in_steps,
        reach,
        root_of,
        target,
        threaded,
        use_options,
        wait_until_free,
    )
    from .run_status import RunStatus, before_a_start, by_need, wanted
