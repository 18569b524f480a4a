"""The readable files as views of a moment: state.json, todo.md, steps/. Pure: a moment in, bytes out.

Also the other direction: what a file says, compared with the moment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import Raw

from ..base import ID, SCHEMAS, slug, stamp
from ..journal import Kept, OfCall, StepCompleted, StepFailed, StepStarted, blobs
from ..state import ROOT, AgentMoment, Moment, Scope, Status, folder_of_agent
from ..store import Store
from . import schema_files

STATE = "state.json"
TODO = "todo.md"
STEPS = "steps"
STEPS_SHOWN = 50
"""How many results of each open scope are shown, the newest: a scope of 10,000 steps must not become 10,000 files."""

STEPS_SHOWN_REMOTELY = 3
"""The same where every file is a request, to write and at each opening to read."""

_HASHED = re.compile("-[0-9a-f]{6}$")
_STEP_FILE = re.compile(r"/[0-9]{2,}-[a-z0-9-]+\.json\Z")
_AT = b'"at": {"seq": %d, "epoch": %d, "sha": "00000000"}'


def state_file(moment: Moment, agent: AgentMoment, *, checkpoint: str = "") -> bytes:
    """`checkpoint`: the name of the one in whose folder it is a copy, and no projection."""
    facts: dict[str, object] = {"status": status_of(moment, agent)}
    if not agent.path:
        facts |= {"kind": moment.kind} if moment.kind else {}
        facts |= {"reason": moment.reason} if moment.reason else {}
        facts |= {"until": moment.until} if moment.until else {}
        facts["attempt"] = moment.attempt
    elif agent.error:
        facts["reason"] = f"{agent.error.kind}: {agent.error.message}"
    facts["open"] = [folder_of(key, scope.title) for key, scope in agent.scopes.items() if key != ROOT]
    facts |= {"own_work": sorted(agent.plan.own_work)} if agent.plan.own_work else {}
    facts["waiting_for"] = [
        id
        for questions in (moment.doubts, moment.approvals)
        for id, asked in questions.items()
        if asked.agent == agent.path
    ]
    if children := moment.children(agent.path):
        facts["agents"] = {child.path.rpartition("/")[2]: status_of(moment, child) for child in children}
    if not agent.path:
        facts["usage"] = moment.usage
        facts |= {"run_nonce": moment.run_nonce} if moment.run_nonce and not moment.lost_nonce else {}
    facts |= {"data_version": agent.data_version} if agent.data_version > 1 else {}
    facts |= _kept("input", agent.input)
    facts |= _kept("result", agent.result)
    facts["data"] = agent.data
    inside = "../../" if checkpoint else ""
    return _json(moment, f"{inside}{schema_of_state(agent)}", facts, checkpoint=checkpoint)


def _kept(name: str, kept: Kept | None) -> dict[str, object]:
    """An input or a result, or where it is; nothing for null."""
    if kept is None or not (kept.blob or len(kept.result)):
        return {}
    return {f"{name}_in": f"{blobs.BLOBS}/{kept.blob}"} if kept.blob else {name: kept.result}


def schema_of_state(agent: AgentMoment) -> str:
    """The value of `$schema` in an agent's state.json."""
    return f"{_up(agent.folder)}.satchel/schemas/{agent.folder}state.json"


def status_of(moment: Moment, agent: AgentMoment) -> Status:
    """A sub-agent's own status if it has ended, or has not begun: the run has gone back to before that, or is a fork
    from before it. Else that of the run."""
    if agent.path and not agent.args:
        return "new"
    if agent.path and agent.result is not None:
        return "completed"
    return "failed" if agent.path and agent.error else moment.status


def todo_file(moment: Moment, agent: AgentMoment) -> bytes:
    return stamp.sign_markdown(agent.plan.text.encode(), moment.seq, moment.epoch, owner(moment, agent))


def todo_copy(moment: Moment, agent: AgentMoment, checkpoint: str) -> bytes:
    """For the folder of this checkpoint."""
    return stamp.sign_copy(agent.plan.text.encode(), moment.seq, moment.epoch, owner(moment, agent), checkpoint)


def owner(moment: Moment, agent: AgentMoment) -> str:
    """The run and agent of a plan, for the stamp."""
    return f"{moment.run_id}/{agent.path}"


def steps_shown(store: Store) -> int:
    """Of each open scope."""
    return STEPS_SHOWN_REMOTELY if store.abilities.remote else STEPS_SHOWN


class StepFile(NamedTuple):
    path: str
    scope: str
    record: OfCall  # a StepCompleted, a StepFailed, or the StepStarted of an effect in doubt


def step_files(agent: AgentMoment, most: int = STEPS_SHOWN) -> Iterator[StepFile]:
    """`most` of each scope."""
    for key, scope in agent.scopes.items():
        yield from step_files_of(agent, key, scope, most)


def files_there(store: Store, folder: str = "") -> Iterator[str]:
    """Where the storage has, or may have, a plan, a state or steps: those of the agent with this folder, and of all
    below it."""
    yield from (folder + TODO, folder + STATE)
    for of_scope in store.folders(folder + STEPS):
        yield from (entry.path for entry in store.list(of_scope))
    for child in store.folders(f"{folder}agents"):
        yield from files_there(store, f"{child}/")


def step_files_of(agent: AgentMoment, key: str, scope: Scope, most: int) -> Iterator[StepFile]:
    """The newest steps of a scope, and the newest failed ones, newest first; effects in doubt always."""
    done: Iterator[OfCall] = scope.newest(most)
    failed: Iterator[OfCall] = islice(reversed(scope.failed.values()), most)
    for record in (*scope.started.values(), *failed, *done):
        yield StepFile(step_path(agent.folder, key, scope.title, record), key, record)


def step_path(folder: str, key: str, title: str, record: OfCall) -> str:
    """The file of a call. `folder` is that of its agent."""
    return f"{folder}{STEPS}/{folder_of(key, title)}/{file_stem(record.no, record.step)}.json"


def step_file(moment: Moment, record: OfCall, at: tuple[int, int] | None = None) -> bytes:
    """`at`: seq and epoch of its stamp, to compare it with a file of an earlier moment."""
    facts: dict[str, object] = {
        **({"agent": record.agent} if record.agent else {}),
        "scope": record.scope,
        "no": record.no,
        "step": record.step,
        "kind": "step",
        "call": record.call,
        "status": "in_doubt",
        "result": None,
    }
    if isinstance(record, StepCompleted):
        facts |= {"kind": "effect" if record.effect else "step", "status": "completed", "ms": record.ms}
        if record.blob:
            facts |= {"result": None, "result_in": f"{blobs.BLOBS}/{record.blob}"}
        else:
            facts |= {"result": record.result if len(record.result) else Raw(b"null")}
    elif isinstance(record, StepFailed):
        error = {"kind": record.error.kind, "message": record.error.message}
        facts |= {"kind": "effect" if record.effect else "step", "status": "failed", "error": error}
    else:
        facts |= {"kind": "effect"}
    top = f"{_up(folder_of_agent(record.agent))}../../"
    return _json(moment, f"{top}{schema_of_step(record)}", facts, at)


def schema_of_step(record: OfCall) -> str:
    """The path of the schema that the file of a call names."""
    if isinstance(record, StepStarted | StepCompleted | StepFailed) and record.schema:
        return schema_files.result_path(record.schema)
    return f"{SCHEMAS}/step.json"


def _up(folder: str) -> str:
    """The path from an agent's folder to the workspace."""
    return "../" * folder.count("/")


def folder_of(key: str, title: str) -> str:
    """The name of a scope's folders: `3-summarise-report-b` for an item, `_name` for a named scope."""
    if key == ROOT:
        return "_agent"
    words = slug(title)
    if ID.fullmatch(key):
        if "-" in key:  # `3-a` must not look like item `3` called "a"
            return f"{key}.{words or 'item'}"
        return f"{key}-{words}" if words else key
    name = slug(key[1:])
    if key == f"_{name}" and name != "agent" and not _HASHED.search(name):
        return key
    return f"_{name}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def is_step_file(path: str) -> bool:
    """Whether a file in a scope's folder can be one of ours, by its name."""
    return _STEP_FILE.search(path) is not None


def file_stem(no: int, step: str) -> str:
    return f"{no:02d}-{slug(step) or 'step'}"


def _json(
    moment: Moment, schema: str, facts: dict[str, object], at: tuple[int, int] | None = None, checkpoint: str = ""
) -> bytes:
    """Pretty JSON with the stamp near its top, on one line."""
    head = {"$schema": schema, "format": 1, "run_id": moment.run_id}
    head |= {"checkpoint": checkpoint} if checkpoint else {}
    top = msgspec.json.format(msgspec.json.encode(head), indent=2)[:-2]
    rest = msgspec.json.format(msgspec.json.encode(facts), indent=2)[1:]
    return stamp.sign_json(b"%s,\n  %s,%s\n" % (top, _AT % (at or (moment.seq, moment.epoch)), rest))
