"""Where a run stands, as far as files tell: for `status` and `ls`. Changes nothing, takes no lock, runs no code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ...workspace import archive, inbox, lease, pausing, record, tombstone
from ...workspace.agentmoment import ROOT
from ...workspace.definition import Definition
from ...workspace.edits import Noticed, notice, untaken
from ...workspace.edits.keeping import not_settled
from ...workspace.errors import SatchelError
from ...workspace.journal import Tail
from ...workspace.lease import Lease
from ...workspace.looking import define, look_beside
from ...workspace.moment import Moment
from ...workspace.projection import TODO
from ...workspace.rebuilding import begun
from ...workspace.record import BadLine
from ...workspace.saving import being_saved
from ...workspace.scopemoment import Scope
from ...workspace.settling import BRIEF
from ...workspace.stamp import read_markdown
from ...workspace.store import Store
from ...workspace.sync_copies import sync_copies
from ...workspace.todo import Plan, Task
from ...workspace.tombstone import Tombstone
from . import asked

_REASONS = re.compile(r"\.rejected(-[0-9]+)?\.txt\Z")

State = Literal[
    "new", "running", "draining", "interrupted", "waiting", "paused", "sleeping", "failed", "completed", "cancelled",
    "damaged", "moved",
]  # fmt: skip


@dataclass(slots=True)
class Standing:
    """What could be found out. `problem` says why the rest could not."""

    url: str
    state: State = "damaged"
    definition: Definition | None = None
    moment: Moment | None = None
    holder: Lease | None = None  # the process that runs it
    heard: str = ""  # when that said so last, where it has to
    last: Lease | None = None  # the process that ended without closing it, if it left word
    at: str = ""  # of the last record
    plan: Plan | None = None
    complaints: list[str] = field(default_factory=list)
    noticed: Noticed | None = None  # what an opening would make of the readable files, of a run that is not running
    pause_problem: SatchelError | None = None  # pause.yaml can't be understood
    wish: record.PauseRequested | None = None  # what it asks for, if that is not on record yet
    waiting_edits: tuple[str, ...] = ()  # files that were saved while it is running, and are not taken yet
    refused: list[str] = field(default_factory=list)  # files with the reasons of edits that were not taken
    being_saved: tuple[str, ...] = ()  # files that a program has open for writing
    begun: SatchelError | None = None  # what is asked because the journal is gone
    waiting: int = 0  # files in the inbox that nobody has taken
    has_conflict: bool = False  # a file and the run contradict each other, and nobody has settled that
    has_tasks: bool = False  # it has completed, and the inbox has something to do for it
    problem: SatchelError | None = None
    mistake: SatchelError | None = None  # in workspace.yaml, and a process runs by what it said before
    moved: Tombstone | None = None  # it lives elsewhere

    @property
    def at_work(self) -> Task | None:
        """The item that is begun, or the one that is next."""
        return self.plan.next_leaf() if self.plan else None

    @property
    def wants_merge(self) -> bool:
        """It can't go on before somebody has settled what a file and the run contradict each other in."""
        return self.has_conflict and self.state not in ("running", "draining", "cancelled", "damaged", "moved")

    @property
    def scope(self) -> tuple[str, Scope] | None:
        """What has begun and not committed, besides the agent's own calls."""
        scopes = self.moment.root.scopes.items() if self.moment else ()
        return next(((key, scope) for key, scope in scopes if key != ROOT), None)


def stand(store: Store, *, with_edits: bool = False) -> Standing:
    """Never raises for what is wrong with the workspace, except that there is none. `with_edits` looks for what people
    have changed in the files, too."""
    standing = Standing(store.url)
    definition_problem: SatchelError | None = None
    try:
        standing.definition = define(store)
    except SatchelError as error:
        definition_problem = error
        standing.moved = _moved(store)
        standing.state = "moved" if standing.moved else "damaged"
    try:
        standing.last = lease.read(store)
        standing.holder = lease.holder(store)
        standing.heard = store.trace(lease.PATH).at if standing.holder and standing.holder.ttl else ""
    except (SatchelError, OverflowError):  # a number that is no process
        standing.holder = None
    if definition_problem and (standing.moved or standing.holder is None):
        standing.problem = definition_problem
        return standing
    try:
        seen = look_beside(store, standing.definition)
    except SatchelError as error:
        standing.problem = definition_problem or error
        return standing
    standing.definition, standing.mistake = seen.definition, seen.mistake
    standing.moment, standing.complaints = seen.moment, [*seen.complaints]
    if seen.mistake:
        standing.complaints.append(in_force(seen.mistake))
    for name in store.unusable(archive.FOLDER):
        standing.complaints.append(f"inbox/{name} is left alone: not every system takes that name. Rename it")
    standing.complaints += map(str, sync_copies(store, (agent.folder for agent in seen.moment.agents.values())))
    standing.at = _last_time(seen.tail)
    standing.state = _state(standing, seen.moment, _is_stopped(standing, store, seen.moment))
    if standing.holder is not None:
        standing.waiting_edits = tuple(untaken(store, seen.moment))
    try:
        standing.being_saved = tuple(being_saved(store, with_inbox=True))
        standing.waiting = len(inbox.waiting(store, seen.moment))
        standing.refused = _refused(store, seen.moment)
        standing.has_conflict = bool(not_settled(store, seen.moment))
        standing.has_tasks = standing.state == "completed" and inbox.has_work(store, seen.moment)
    except SatchelError as error:
        standing.problem = error
    if standing.state not in ("running", "draining") and with_edits:  # else the files go on meanwhile
        try:
            standing.noticed = notice(
                store, seen.moment, seen.definition, is_rebuilt=seen.is_rebuilt, patience=BRIEF
            )  # fmt: skip
            standing.has_conflict |= bool(standing.noticed.questions)
        except SatchelError as error:
            standing.problem = error
        if seen.is_rebuilt:
            standing.begun = begun(seen.moment)
    if seen.moment.root.has_plan:
        standing.plan = seen.moment.root.plan
    else:
        _read_plan(store, standing)
    return standing


def _refused(store: Store, moment: Moment) -> list[str]:
    """The reasons of edits that were not taken, as long as nobody has deleted them."""
    folders = [archive.FOLDER, *(agent.folder.rstrip("/") for agent in moment.agents.values())]
    return [entry.path for folder in folders for entry in store.list(folder) if _REASONS.search(entry.path)]


def _moved(store: Store) -> Tombstone | None:
    try:
        return tombstone.read(store)
    except SatchelError:
        return None


def _is_stopped(standing: Standing, store: Store, moment: Moment) -> bool:
    """Whether a pause is wanted or in force. A file that can't be understood is a wish, too."""
    if moment.status == "cancelled":
        return False
    try:
        wanted = pausing.wish(store, moment, BRIEF)
    except SatchelError as error:
        standing.pause_problem = error
        return moment.status != "completed"
    if moment.status == "completed":
        return False
    if wanted is None or wanted.is_lifted:
        return False
    standing.wish = pausing.requested(wanted)
    return True


def _state(standing: Standing, moment: Moment, is_stopped: bool) -> State:
    if standing.holder and (not moment.clean or standing.holder.epoch > moment.epoch):
        return "draining" if is_stopped else "running"
    if is_stopped:
        return "paused"
    if not moment.clean or moment.status == "running":
        return "interrupted"  # recovered or not: the agent did not come to an end
    return "paused" if moment.status == "draining" else moment.status


def _last_time(tail: Tail) -> str:
    """When the last record was written. The newest checkpoint may stand behind it, so it may not be in `lines`."""
    if tail.lines:
        return tail.lines[-1].at
    row = tail.good.rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return record.parse(row).at if row else ""
    except BadLine:
        return ""


def _read_plan(store: Store, standing: Standing) -> None:
    """A plan that a person has written for a run that has not begun."""
    try:
        found = read_markdown(store.read(TODO).data)
        standing.plan = Plan(found.body.decode())
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    except SatchelError as error:
        standing.problem = error


def in_force(mistake: SatchelError) -> str:
    """What to say of a mistake in workspace.yaml of a run that a process runs."""
    return f"{mistake}; the run goes on with what it said before"


def doing(standing: Standing) -> str:
    """The process that has the workspace, or had it last."""
    process = standing.holder or standing.last
    return process.process if process else "a process"


def as_json(standing: Standing) -> dict[str, Any]:
    """What `status --json` and `ls --json` have in common."""
    moment, definition, problem = standing.moment, standing.definition, standing.problem or standing.mistake
    progress = standing.plan.progress if standing.plan else None
    return {
        "workspace": standing.url,
        "run_id": definition.run_id if definition else standing.moved.run_id if standing.moved else None,
        "agent": definition.agent if definition else None,
        "state": standing.state,
        "moved_to": standing.moved.to if standing.moved else None,
        "reason": moment.reason if moment else "",
        "items": {"done": progress.settled, "all": progress.leaves} if progress else None,
        "inbox": {"waiting": standing.waiting, "taken": len(moment.tasks) if moment else 0},
        "last_activity": standing.at or None,
        "pause": msgspec.to_builtins(replace(moment.pause, file="")) if moment and moment.pause else None,
        "edits_waiting": list(standing.waiting_edits),
        "being_saved": list(standing.being_saved),
        "open_questions": asked.as_json(moment, None) if moment else [],
        "holder": msgspec.to_builtins(standing.holder) if standing.state == "running" else None,
        "heard": standing.heard or None,
        "problem": {"kind": type(problem).__name__, "message": str(problem)} if problem else None,
    }  # fmt: skip
