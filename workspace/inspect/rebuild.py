"""Continue without a journal: make a moment from workspace.yaml, todo.md and state.json, if their stamps agree.

What only the journal knew is lost: results of steps and scopes, and which effects have happened. So a person is asked
about an item that had begun, and an effect that may have happened is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec import Raw

from ..base import Conflicting, Damaged, Stamp, decode, stamp
from ..formats import Definition, jsontext
from ..journal import Kept, blobs
from ..plan import Plan
from ..state import EVERY, ROOT, AgentMoment, MessagesAt, Moment, Past, Status, Usage, folder_of_agent
from ..store import LARGE_LIMIT, Store, read_if_there
from ..views import conversation, projection
from . import lease

_REMEDY = "copy the folder journal/ from the place where this workspace came from"
_TOLD = 5
_STATUSES: list[Status] = [each for each in get_args(Status) if each != "draining"]  # pause.yaml says the rest


def rebuild(store: Store, described: Definition, known: Moment | None) -> Moment | None:
    """The moment that the readable files show. None if there are none: a run that has not begun. Damaged if they show
    different moments, and for a workspace that programs hold: only the record knows its keys and versions. `known` is
    the content of the newest checkpoint, if there is one."""
    run_id = described.run_id
    root = _read_agent(store, run_id, "")
    if root is None:
        if known is None:
            return None
        raise Damaged(
            "the journal is missing",
            path="journal",
            why=f"the newest checkpoint is at record {known.seq}, and there is no state.json to continue from",
            remedy=_REMEDY,
        )
    at, state, agent = root
    if known is not None and known.seq > at.seq:
        raise Damaged(
            "the journal is missing",
            path="journal",
            remedy=_REMEDY,
            why=f"the newest checkpoint is at record {known.seq}, and the readable files at {at.seq}",
        )
    if known is not None and known.seq == at.seq and known.clean:
        return known  # it is the newest, so nothing is lost
    if described.kind:
        raise Damaged(
            "the journal is missing",
            path="journal",
            why="only it knows which rows and files a program has written, and under which keys",
            remedy=f"{_REMEDY}; or hold another folder, and let the program append there what logs/, "
            "messages.jsonl and files/ of this one show",
        )
    agents = {"": agent, **{child.path: child for child in _below(store, run_id, "", at, state)}}
    for path, before in known.agents.items() if known is not None else ():
        if path in agents:
            _remember(agents[path], before)
    if store.version(lease.PATH) is not None:
        for each in agents.values():
            _forget_what_came_next(each)
    status, attempt = state.get("status"), state.get("attempt")
    reason, until = (found if isinstance(found := state.get(name), str) else "" for name in ("reason", "until"))
    nonce, is_lost = _nonce(state, known)
    moment = Moment(
        run_id=run_id,
        run_nonce=nonce,
        lost_nonce=is_lost,
        seq=at.seq,
        epoch=at.epoch,
        agents=agents,
        reason=reason,
        status=next((each for each in _STATUSES if each == status), "paused"),
        attempt=attempt if isinstance(attempt, int) else 1,
        usage=_usage(state.get("usage")),
        until=until,
        forked=known.forked if known is not None else None,
        is_replay=known is not None and known.is_replay,
    )
    for each in agents.values():
        each.messages_at = _messages(store, each)
        each.messages = each.messages_at.count
    return moment


def begun(moment: Moment) -> Conflicting | None:
    """The question about a begun item whose work is no longer known."""
    found = [
        (agent, task)
        for agent in moment.agents.values()
        for task in agent.plan.tasks
        if task.mark == "begun" and task.is_work and task.id not in agent.scopes
    ]
    if not found:
        return None
    agent, task = found[0]
    others = [f"{task.text!r} in {agent.folder}{projection.TODO}" for agent, task in found[1:_TOLD]]
    others += ["and more"] if len(found) > _TOLD else []
    return Conflicting(
        f"item {task.id or ''} ({task.text!r}) was begun, and the journal that recorded its progress is missing",
        path=f"{agent.folder}{projection.TODO}",
        why="its effects may happen a second time" + (f"; so had {', '.join(others)}" if others else ""),
        remedy="mark it `[ ]` to do it from its beginning, `[x]` if it is done, or `[-]` to drop it; then run again",
    )


def _remember(agent: AgentMoment, before: AgentMoment) -> None:
    """Keep the effects that an older checkpoint knows."""
    agent.past, agent.results, agent.outputs = before.past, before.results, before.outputs
    agent.highest_id = max(agent.highest_id, before.highest_id)
    agent.forgotten = list(dict.fromkeys([*agent.forgotten, *before.forgotten]))
    for key, scope in before.scopes.items():  # it has continued since, so these are not all
        effects = {call: step for call, step in scope.done.items() if step.effect}
        if effects and key != ROOT:
            agent.past[key] = Past(
                title=scope.title,
                last_number=scope.last_number,
                done=effects,
                settled=scope.settled,
                when=scope.when,
                again=scope.again,
            )


def _forget_what_came_next(agent: AgentMoment) -> None:
    """The last process has not ended normally, and the files may be older than its work: an item that they show as open
    may have begun."""
    task = agent.plan.next_to_do()
    if task is None or task.mark != "begun":
        agent.forgotten.append(task.id if task and task.id else str(agent.highest_id + 1))


def _read_agent(store: Store, run_id: str, path: str) -> tuple[Stamp, dict[str, Any], AgentMoment] | None:
    folder = folder_of_agent(path)
    name = folder + projection.STATE
    if (found := read_if_there(store, name)) is None:
        return None
    at = stamp.read_json(found.data).stamp
    if at is None and not path:
        return None  # a person's own; the opening says so
    state = jsontext.load(decode(found.data, name), name)
    if not isinstance(state, dict) or "data" not in state or at is None or state.get("run_id") != run_id:
        raise _not_enough(name, "it has no stamp, no data, or belongs to another run")
    agent = AgentMoment(path=path, data=state["data"], has_data=state["data"] is not None)
    if type(version := state.get("data_version")) is int and version > 1:  # else they would be migrated again
        agent.data_version = version
    if not path:
        agent.input = _kept(state, "input")
        agent.result = (_kept(state, "result") or Kept()) if state.get("status") == "completed" else None
    at_work = {_key_of(name) for name in names} if isinstance(names := state.get("open"), list) else set()
    has_begun = bool(at_work) or bool(isinstance(usage := state.get("usage"), dict) and usage.get("items"))
    own_work = {id for id in ids if isinstance(id, str)} if isinstance(ids := state.get("own_work"), list) else set()
    _read_plan(store, run_id, agent, at, own_work, must_be_there=has_begun)
    # An item with an id has begun once, or may have. A person decides about the open ones.
    agent.forgotten = [ROOT, *(task.id for task in agent.plan.tasks if task.id and task.id not in at_work)]
    if path and not agent.has_plan:
        agent.forgotten.append(EVERY)  # it is unknown whether it ever had one
    if path and state.get("status") == "completed":
        agent.result = Kept()  # its arguments are unknown, so no call gets its result
    return at, state, agent


def _key_of(folder: object) -> str:
    """The scope of a folder's name; see projection.folder_of."""
    name = folder if isinstance(folder, str) else ""
    return name.partition("." if "." in name else "-")[0]


def _read_plan(
    store: Store, run_id: str, agent: AgentMoment, at: Stamp, own_work: set[str], *, must_be_there: bool
) -> None:
    name = agent.folder + projection.TODO
    if (saved := read_if_there(store, name)) is None:
        if must_be_there:
            raise _not_enough(name, "it is missing, and the run has had items")
        return
    found = stamp.read_markdown(saved.data, f"{run_id}/{agent.path}")
    if found.stamp is None or found.stamp[:2] != at[:2]:
        where = f"record {found.stamp.seq}" if found.stamp else "no record"
        raise _not_enough(name, f"it is at {where}, state.json at record {at.seq}")
    agent.plan, agent.has_plan = Plan(decode(found.body, name), own_work), True
    numbers = [int(task.id) for task in agent.plan.tasks if task.id and task.id.isdecimal() and len(task.id) <= 15]
    agent.highest_id = max(numbers, default=0)


def _below(store: Store, run_id: str, path: str, at: Stamp, state: dict[str, Any]) -> Iterator[AgentMoment]:
    folders = [*store.folders(f"{folder_of_agent(path)}agents")]
    there = {folder.rpartition("/")[2] for folder in folders if store.version(f"{folder}/{projection.STATE}")}
    for name in names if isinstance(names := state.get("agents"), dict) else ():
        if name not in there:
            raise _not_enough(f"{folder_of_agent(path)}agents/{name}/{projection.STATE}", "it is missing")
    for folder in folders:
        name = folder.rpartition("/")[2]
        child = f"{path}/{name}" if path else name
        found = _read_agent(store, run_id, child)
        if found is None:
            continue  # not an agent's
        if found[0][:2] != at[:2]:
            raise _not_enough(f"{folder}/{projection.STATE}", f"it is at record {found[0].seq}, the root's at {at.seq}")
        yield found[2]
        yield from _below(store, run_id, child, at, found[1])


def _messages(store: Store, agent: AgentMoment) -> MessagesAt:
    """The conversation in the file, up to its last whole line."""
    found = read_if_there(store, agent.folder + conversation.NAME, limit=LARGE_LIMIT)
    return conversation.position(found.data[: found.data.rfind(b"\n") + 1]) if found is not None else MessagesAt()


def _nonce(state: dict[str, Any], known: Moment | None) -> tuple[str, bool]:
    """The nonce of the run, and whether an earlier one is lost. The checkpoint of a run without a nonce says so."""
    found = state.get("run_nonce")
    if isinstance(found, str) and found:
        return found, False
    return ("", True) if known is None else (known.run_nonce, known.lost_nonce)


def _kept(state: dict[str, Any], name: str) -> Kept | None:
    """The input or the result that a state.json shows, or names."""
    if isinstance(place := state.get(f"{name}_in"), str):
        return Kept(blob=place.removeprefix(f"{blobs.BLOBS}/"))
    return Kept(Raw(msgspec.json.encode(state[name]))) if name in state else None


def _usage(found: Any) -> Usage:
    numbers = found if isinstance(found, dict) else {}
    return Usage(**{name: numbers[name] for name in ("steps", "items") if isinstance(numbers.get(name), int)})


def _not_enough(path: str, why: str) -> Damaged:
    return Damaged(
        "the journal is missing, and the readable files are not enough to continue from",
        path=path,
        why=why,
        remedy=_REMEDY,
    )
