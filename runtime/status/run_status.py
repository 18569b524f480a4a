"""Where a run is, as far as files tell: for `status` and `ls`. Changes nothing, takes no lock, runs no code."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from ...workspace import journal
from ...workspace.base import (
    DEFINITION,
    DRIFTED,
    InvalidFile,
    Refused,
    SatchelError,
    in_force,
    one_line,
    read_markdown,
    urls,
)
from ...workspace.formats import Definition
from ...workspace.inbound import (
    APPROVALS,
    Noticed,
    archive,
    being_saved,
    inbox,
    not_settled,
    notice,
    notice_saved,
    untaken,
)
from ...workspace.inspect import (
    BackupMark,
    BackupNote,
    Lease,
    Look,
    Remark,
    Signature,
    Tombstone,
    begun,
    define,
    glance,
    lease,
    report,
    signature,
    sync_copies,
    transfer_file,
)
from ...workspace.lifecycle import Leftover, acquire, pausing, recovery, retention
from ...workspace.plan import Plan, Task
from ...workspace.secrets import redactor_of
from ...workspace.state import ACTIVE, ROOT, STATES, Approval, Moment, Scope, State, prompts
from ...workspace.store import Store, Version
from ...workspace.views import BRIEF, TODO
from . import activity
from .activity import Forecast, OpenQuestion, Retrying, RunningCall, Scheduled, forecast_of, questions_of
from .log import value_of
from .place import Place

if TYPE_CHECKING:
    from ...workspace.history import FailedCall
    from ..live import Share
    from ..supervision import RestingRow, RunFigures

_LOOKS = 8
_REASONS = re.compile(r"\.rejected(-[0-9]+)?\.txt\Z")

_DOUBTFUL: frozenset[State] = frozenset(("interrupted", "damaged"))


class RunStatus(Struct):
    """Where a run is. A field is None or empty if it could not be read, and `problem` says why.

    Made by `Handle.status` and `ls`. Its text may come from a stranger, so it is not safe for a terminal. Not
    guaranteed: that all of it is of the same moment while a process runs the workspace.
    """

    url: str
    state: State = "damaged"
    definition: Definition | None = None
    moment: Moment | None = None
    holder: Lease | None = None  # the process that runs it
    heard: str = ""  # its last heartbeat, where it needs one
    last: Lease | None = None  # the process that ended without closing it, if it left a lease
    at: str = ""  # of the last record
    plan: Plan | None = None
    complaints: list[str] = field(default_factory=list)
    noticed: Noticed | None = None  # what an opening would do with the readable files of a stopped run
    pause_problem: SatchelError | None = None  # pause.yaml can't be understood
    lacks_instructions: bool = False  # the pause waits for instructions, and pause.yaml has none
    wish: journal.PauseRequested | None = None  # its request, if that is not on record yet
    waiting_edits: tuple[str, ...] = ()  # files saved during the run that are not taken yet
    refused: list[str] = field(default_factory=list)  # files with the reasons of edits that were not taken
    being_saved: tuple[str, ...] = ()  # files that a program has open for writing
    begun: SatchelError | None = None  # what is asked because the journal is missing
    waiting: int = 0  # files in the inbox that no agent has taken
    has_conflict: bool = False  # an unresolved conflict of a file and the run
    has_tasks: bool = False  # it has completed, and the inbox has new tasks
    problem: SatchelError | None = None
    mistake: SatchelError | None = None  # a mistake in workspace.yaml, while a process runs with the earlier values
    moved: Tombstone | None = None  # it lives elsewhere
    backup_of: BackupMark | None = None  # the place is a backup
    backup: BackupNote | None = None  # of its own, if it has one
    may_be_copy: bool = False  # of a run that lives elsewhere: nothing opens it without `--adopt`
    next: str = ""  # the next command to type
    questions: list[OpenQuestion] = field(default_factory=list)  # those that are open
    folder: str = ""  # of `ls`: where the search has found it
    same_run_id: list[str] = field(default_factory=list)  # of `ls`: the other folders with this run_id
    # What a brief look leaves out
    input: Any = None  # the arguments of the agent, by parameter, as JSON values; None: none
    result: Any = None  # what the agent of a completed run has returned, as a JSON value
    streams: list[Leftover] = field(default_factory=list)  # output that is being streamed, or that a crash has cut off
    running: list[RunningCall] = field(default_factory=list)  # the calls of an active run that run for long
    report: list[Remark] = field(default_factory=list)  # the report of the last opening
    schedule: list[Scheduled] = field(default_factory=list)
    ahead: str = ""  # in words, that a record lies in the future, so that a clock is wrong
    budget: list[Share] = field(default_factory=list)  # what is used of each limit
    history: retention.Size | None = None  # of the run's past, and the first record of it
    failed_call: FailedCall | None = None  # the call that the error of a failed or stuck run came from

    def __repr__(self) -> str:
        """Short: all of it is the whole run."""
        return f"RunStatus(state={self.state!r}, url={self.url!r})"

    @property
    def at_work(self) -> Task | None:
        """The item that has begun, or the next one."""
        return self.plan.next_to_do() if self.plan else None

    @property
    def forecast(self) -> Forecast | None:
        """How fast a running run does its items, and how long the rest takes. None before the first has ended."""
        if self.state != "running" or self.moment is None or not self.moment.root.has_plan:
            return None
        return forecast_of(self.moment, time.time())

    @property
    def is_edited(self) -> bool:
        """Whether a start would take edits of people, or ask about files that they have copied here."""
        return self.noticed is not None and bool(self.noticed.edits or self.noticed.back)

    @property
    def retries(self) -> list[Retrying]:
        """The calls of an active run that wait to be tried again."""
        return activity.calls_to_retry(self.moment) if self.moment and self.state in ACTIVE else []

    @property
    def has_new_work(self) -> bool:
        """It has completed, and a start would do more."""
        return self.state == "completed" and bool(self.at_work or self.has_tasks or self.is_edited)

    @property
    def wants_adoption(self) -> bool:
        """A person must first say that the run continues here. Before that no answer is taken, and nothing merged."""
        return self.may_be_copy and (STATES[self.state].phase == "stopped" or self.has_new_work)

    @property
    def wants_merge(self) -> bool:
        """A person must first resolve a conflict between a file and the run."""
        return self.has_conflict and self.state not in (*ACTIVE, "cancelled", "damaged", "moved", "backup")

    @property
    def needs_person(self) -> bool:
        """The run asks for something, or rests until a person does something. Not if it has never begun, has moved, or
        is paused until a time."""
        if self.state in ("new", "moved", "backup", "cancelled"):
            return False
        if self.state == "paused" and not (self.wants_merge or asked(self) or self.pause_problem):
            return not ends_by_itself(self)
        return bool(wanted(self)) or self.problem is not None

    @property
    def may_be_running(self) -> bool:
        """A process runs it, or is about to: its supervisor, after a crash. Of a damaged run the files don't tell."""
        return self.holder is not None or self.state == "damaged" or self.is_supervised

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor is about to start it again."""
        last = self.last
        if self.state != "interrupted" or last is None or last.supervisor is None or last.host != socket.gethostname():
            return False
        return lease.process_started(last.supervisor.pid) == last.supervisor.process_started

    @property
    def approved(self) -> dict[str, Approval]:
        """The approvals that stand for later calls, by their questions."""
        return self.moment.standing if self.moment else {}

    @property
    def scopes(self) -> dict[str, Scope]:
        """What has begun and not committed, by id, besides the agent's own calls: several items if they run in
        parallel."""
        scopes = self.moment.root.scopes.items() if self.moment else ()
        return {key: scope for key, scope in scopes if key != ROOT}


class RestingStatus(RunStatus):
    """The status of a run that rests, from the index of `serve`. What lists do not show is read when it is first asked
    for, so that may be of a later moment."""

    row: RestingRow = None  # type: ignore[assignment]  # both are set at once
    figures: RunFigures = None  # type: ignore[assignment]
    read: Callable[[], RunStatus] = lambda: RunStatus("")

    def __post_init__(self) -> None:
        for name in _READ_LATER:
            delattr(self, name)  # `__getattr__` is called for what is not there

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _READ_LATER:
                raise AttributeError(name)
            found = self.read()
            for each in (*_READ_LATER, "problem"):
                setattr(self, each, getattr(found, each))
            return getattr(self, name)

    def __reduce__(self) -> tuple[type[RunStatus], tuple[Any, ...]]:
        return RunStatus, tuple(getattr(self, name) for name in RunStatus.__struct_fields__)

    def __copy__(self) -> RunStatus:
        kind, facts = self.__reduce__()
        return kind(*facts)

    def __eq__(self, other: object) -> bool:
        return self is other  # as of two others: plans are not compared


_READ_LATER = ("moment", "plan", "next", "questions")

Signs = tuple[Signature, Version | None]


def status(place: Place, *, brief: bool) -> RunStatus:
    """The status of a run. `brief`: only what `ls` shows.

    A process may write or end between two reads. Then the files seem damaged, or the run interrupted. So that is only
    reported if nothing has changed since the look began, or after a few looks."""
    for _ in range(_LOOKS):
        status, doubted = look_once(place, brief=brief)
        if doubted is None:
            break
        with suppress(SatchelError, OSError):
            place.store.refresh()
        if signs(place.store) == doubted:
            break
    return status


def look_once(place: Place, *, brief: bool) -> tuple[RunStatus, Signs | None]:
    """What one look shows. If it is doubtful, also the signs that a new listing must still show."""
    before = signs(place.store)
    status = _status(place, brief=brief)
    return status, before if status.state in _DOUBTFUL or status.problem is not None else None


def signs(store: Store) -> Signs | None:
    """They change with each record, and when a process takes the run or lets it go. None if they can't be read."""
    try:
        return signature(store), store.version(lease.PATH)
    except (SatchelError, OSError):
        return None


def _status(place: Place, *, brief: bool) -> RunStatus:
    status = stand(place.store, with_edits=not brief)
    moment = status.moment
    if moment is not None:
        status.questions = questions_of(moment, None if brief else place)
    if not brief:
        with suppress(SatchelError):
            status.report = report.last(place.store)
    if not brief and moment is not None:
        try:
            status.input = value_of(place.store, moment.root.input)
            status.result = value_of(place.store, moment.root.result)
            status.streams = [each for each in recovery.leftovers(place.store, moment) if not each.stale]
            status.complaints += _changed(place.store, status, moment)
            status.running = activity.running(place.store, moment, status.holder)
            status.history = retention.size_of(place.store, moment)
            if moment.error and status.state in ("failed", "paused"):
                from ...workspace.history import failed_call  # a run that goes well needs none of it

                status.failed_call = failed_call(place.store, moment.error)
        except SatchelError as error:
            status.problem = status.problem or error
        if (definition := status.definition) is not None:
            from ..live import limits

            is_running = status.state == "running" or not moment.last_at
            now = datetime.now(UTC)
            until = now if is_running else datetime.fromisoformat(moment.last_at)
            status.budget = limits.shares_of(definition.budget, moment, until)
            if definition.schedule and (late := limits.ahead(moment, now)):
                status.ahead = limits.said_ahead(late)
            status.schedule = activity.schedule_of(place.store, definition, moment, now)
            if definition.prompts == "pinned":
                shelf = prompts.Shelf(place.store, definition.prompts_folder)
                status.complaints += prompts.held(shelf, moment.config)
    status.next = _next(place, status)
    return status


def _changed(store: Store, status: RunStatus, moment: Moment) -> list[str]:
    """The outputs that differ from what the run had made. Not while it runs: it may be writing them."""
    if status.holder is not None:
        return []
    from ..live import reverify

    return reverify.wrong_outputs(store, reverify.outputs_at_rest(moment), seconds=reverify.BRIEF)


def _next(place: Place, status: RunStatus) -> str:
    if status.backup is not None and status.backup.state == "overtaken":
        return ""  # it goes on elsewhere, and `backup` says how a person decides otherwise
    if status.wants_merge and not status.wants_adoption:
        return place.command("merge")
    options = ["--adopt"] if status.wants_adoption else []
    resume, run = (partial(place.command, name, *options) for name in ("resume", "run"))
    match status.state:
        case "new":
            return run()
        case "paused" if status.moment is not None and status.moment.is_new:
            return run()  # there is nothing to resume yet
        case "paused" if status.moment is not None and status.moment.reason == DRIFTED:
            return f"undo the changes of code and settings, or {resume('--accept-drift')}"
        case "waiting" if not status.wants_adoption and asked(status):
            return _after([*before_a_start(status), "answer"], resume())
        case "interrupted" | "paused" | "failed" | "waiting":
            return _after(before_a_start(status), resume())
        case "sleeping":
            return _after(before_a_start(status), f"{run()} when it is time, {resume()} to continue at once")
        case "damaged":
            return place.command("check")
        case "completed" if status.has_new_work:
            return _after(before_a_start(status), resume())
        case _:
            return ""


def _after(steps: list[str], command: str) -> str:
    return f"{', '.join(steps)}, then {command}" if steps else command


def before_a_start(status: RunStatus) -> list[str]:
    """What a person has to do before a start is taken, as far as the files tell, besides answers, conflicts and the
    adoption of a copy."""
    moment = status.moment
    pause = moment.pause if moment is not None else None
    steps = ["correct pause.yaml"] if status.pause_problem else []
    steps += [f"correct {each.path}" for each in (status.noticed.refusals if status.noticed else ())]
    if pause is not None and status.budget:
        from ..live import limits

        used_up = [share.kind for share in status.budget if share.is_used_up and pause.by == limits.BUDGET]
        steps += [f"raise `budget: {kind}:` in {DEFINITION}" for kind in used_up]
    if status.lacks_instructions:
        steps.append("write `instructions:` into pause.yaml")
    if status.begun:
        steps.append("mark the begun items in todo.md")
    return steps


def stand(store: Store, *, with_edits: bool = False, seen: Look | None = None) -> RunStatus:
    """Raises only if there is no workspace; other errors are in the result. `with_edits` also looks for edits in the
    files. `seen`: a glance that was made just now."""
    status = RunStatus(store.url)
    try:
        seen = seen or glance(store, (report.PATH,) if with_edits else (), with_journal=with_edits)
    except SatchelError as error:
        status.problem = error
    _read_holder(store, status)
    if seen is None:
        _read_definition(store, status)
        return status
    moment = seen.moment
    status.definition, status.mistake, status.moment = seen.definition, seen.mistake, moment
    status.at = moment.last_at
    status.backup_of, status.backup = transfer_file.read_mark(store), transfer_file.read_note(store)
    if status.backup_of is not None:
        status.state = "backup"
        status.plan = moment.root.plan if moment.root.has_plan else None
        return status
    _complain(store, status, seen)
    status.state = _state(status, moment, _is_stopped(status, store, moment))
    if status.holder is not None:
        status.waiting_edits = tuple(untaken(store, moment))
    _read_what_people_left(store, status, moment)
    if status.state not in ACTIVE and with_edits:  # else the files change meanwhile
        _notice_edits(store, status, seen)
    elif status.state == "completed" and not seen.is_rebuilt:
        _notice_conflict(store, status, seen)
    if moment.root.has_plan:
        status.plan = moment.root.plan
    else:
        _read_plan(store, status)
    return status


def _read_holder(store: Store, status: RunStatus) -> None:
    """The process that has it, and the last one that had it."""
    try:
        status.last = lease.read(store)
        status.holder = lease.holder(store)
        status.heard = store.trace(lease.PATH).at if status.holder and status.holder.ttl else ""
    except (SatchelError, OverflowError):  # a number that can't be a process
        status.holder = None


def _complain(store: Store, status: RunStatus, seen: Look) -> None:
    """What is wrong and does not keep the run from being looked at."""
    status.complaints = [*seen.complaints]
    if seen.mistake:
        status.complaints.append(in_force(seen.mistake))
    for name in store.unusable(archive.INBOX):
        status.complaints.append(f"inbox/{name} is ignored: the name is not valid on every system. Rename the file")
    status.complaints += map(str, sync_copies(store, (agent.folder for agent in seen.moment.agents.values())))
    if status.holder is None:
        try:
            acquire.judge(store, seen.moment, seen.moment.url, seen.moment.host, reaches_out=False)
        except SatchelError as error:
            status.may_be_copy = True
            if not urls.is_remote(seen.moment.url):  # a look does not connect where a journal says
                status.complaints.append(str(error))


def _read_what_people_left(store: Store, status: RunStatus, moment: Moment) -> None:
    """Files that wait for the run, and files that wait for a person."""
    try:
        status.being_saved = tuple(being_saved(store, with_inbox=True))
        status.waiting = len(inbox.waiting(store, moment))
        status.refused = _refused(store, moment)
        status.has_conflict = bool(not_settled(store, moment))
        status.has_tasks = status.state == "completed" and inbox.has_work(store, moment)
    except SatchelError as error:
        status.problem = error


def _notice_edits(store: Store, status: RunStatus, seen: Look) -> None:
    """The edits that the next opening would take."""
    try:
        status.noticed = notice(
            store, seen.moment, seen.definition, is_rebuilt=seen.is_rebuilt, patience=BRIEF, listed=seen.listed
        )
        status.has_conflict |= bool(status.noticed.questions)
    except SatchelError as error:
        status.problem = error
    if seen.is_rebuilt:
        status.begun = begun(seen.moment)


def _notice_conflict(store: Store, status: RunStatus, seen: Look) -> None:
    """Whether an edit of a completed run contradicts it. No start that comes by itself would tell a person."""
    try:
        status.has_conflict |= bool(notice_saved(store, seen.moment, seen.definition).questions)
    except InvalidFile:
        pass  # it is refused by the next start
    except SatchelError as error:
        status.problem = error


def _refused(store: Store, moment: Moment) -> list[str]:
    """The reasons of refused edits, as long as their files exist."""
    folders = [archive.INBOX, *([APPROVALS] if moment.answered else [])]
    folders += [agent.folder.rstrip("/") for agent in moment.agents.values()]
    return [entry.path for folder in folders for entry in store.list(folder) if _REASONS.search(entry.path)]


def _read_definition(store: Store, status: RunStatus) -> None:
    """What can be said of a workspace that can't be read."""
    try:
        status.definition = define(store)
    except SatchelError as error:
        status.problem = error
        status.moved = _moved(store)
        status.state = "moved" if status.moved else "damaged"


def _moved(store: Store) -> Tombstone | None:
    try:
        return transfer_file.read_tombstone(store)
    except SatchelError:
        return None


def _is_stopped(status: RunStatus, store: Store, moment: Moment) -> bool:
    """Whether a pause is requested or in force. A file that can't be understood is a request, too."""
    if moment.status == "cancelled":
        return False
    try:
        wanted = pausing.wish(store, moment, BRIEF)
    except SatchelError as error:
        status.pause_problem = error
        return moment.status != "completed"
    if wanted is None or wanted.is_lifted or moment.status == "completed":
        return False
    try:
        pausing.check_may_go_on(wanted)
    except Refused:
        status.lacks_instructions = True
    changed = pausing.amended(wanted)
    request = changed or pausing.requested(wanted)
    if request and status.definition:
        with suppress(SatchelError):  # a rule that no start would accept
            redactor = redactor_of(status.definition)
            request = replace(request, reason=redactor.text(request.reason), by=redactor.text(request.by))
    if changed is not None and request is not None and moment.pause is not None:
        moment.pause = replace(moment.pause, reason=request.reason, by=request.by, until=request.until)
        moment.reason = request.reason if moment.status == "paused" else moment.reason
        request = None  # the next start records it
    status.wish = request
    return True


def _state(status: RunStatus, moment: Moment, is_stopped: bool) -> State:
    if status.definition is not None and status.definition.kind:
        return "held"
    if status.holder and (not moment.clean or status.holder.epoch > moment.epoch):
        is_asked = moment.status == "draining" and status.holder.epoch == moment.epoch  # by a signal: without a file
        return "draining" if is_stopped or is_asked else "running"
    if is_stopped:
        return "paused"
    if moment.is_interrupted:
        return "interrupted"  # recovered or not, the agent did not finish
    return "paused" if moment.status == "draining" else moment.status


def _read_plan(store: Store, status: RunStatus) -> None:
    """The plan that a person has written for a run that has not begun."""
    if store.abilities.remote and store.version(TODO) is None:
        return  # most runs without a plan never get one, and in a bucket the listing shows that for nothing
    try:
        found = read_markdown(store.read(TODO).data)
        status.plan = Plan(found.body.decode())
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    except SatchelError as error:
        status.problem = error


def wanted(status: RunStatus) -> str:
    """What a person can do so that the run goes on: `an answer: a1, a2`, or the name of a command. Empty: nothing.
    Safe to print."""
    if status.moved:
        return f"see {one_line(status.moved.to)}"
    if status.backup_of is not None:
        return ""
    if status.wants_adoption:
        return "resume --adopt"
    if status.wants_merge:
        return "merge"  # first: until then neither a start nor an answer is taken
    if ids := asked(status):
        return "an answer: " + ", ".join(ids)
    if status.mistake:
        return "fix workspace.yaml"
    if status.state == "paused" and not isinstance(status, RestingStatus) and status.moment and status.moment.is_new:
        return "run"
    return "resume" if status.has_tasks else STATES[status.state].command


def by_need(status: RunStatus) -> tuple[bool, int]:
    """Sorts runs: those that need a person first, of these those that ask something."""
    is_asking = status.wants_merge or bool(asked(status))
    needs = status.needs_person
    return not needs, 0 if needs and is_asking else list(STATES).index(status.state)


def asked(status: RunStatus) -> list[str]:
    """The ids of its open questions, those about effects in doubt first."""
    if isinstance(status, RestingStatus):
        return [*status.row.asked]
    moment = status.moment
    return [*moment.doubts, *moment.approvals] if moment is not None and status.state != "cancelled" else []


def ends_by_itself(status: RunStatus) -> bool:
    """Whether the pause of a paused run has an end."""
    if isinstance(status, RestingStatus):
        return status.row.is_timed
    pause = status.wish or (status.moment.pause if status.moment else None)
    return pause is not None and bool(pause.until)
