"""An earlier moment of a run, joined with what must not be forgotten since: for a return to it, and for a fork from it.

Data, plan, finished items and the results of steps are those of the earlier moment. What was done outside cannot be
undone: effects, doubts and people's answers stay on record. So an equal call is still answered, and another one is
asked about. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..formats import decoder
from ..journal import NOTHING, Kept, Key, StepCompleted, check_json, check_time
from ..plan import Plan
from .agent_state import ROOT, AgentMoment
from .encoding import shape_of
from .scope_state import Past, Scope, is_done_again, is_of_item, is_of_task

_AGENT = shape_of(AgentMoment)
_agents = decoder(dict[str, _AGENT.kind])  # type: ignore[name-defined]


Reused = Mapping[tuple[str, str], Mapping[Key, StepCompleted]]
"""Results of steps, by agent and scope."""


class LaterEffect(Struct, frozen=True):
    """An effect that was done, or began, after a moment. `title` is that of its scope, `at` is UTC, ISO 8601.
    `is_gone`: the plan of the moment has no item with its id or its title. The effect counts if one with the title
    comes again; under another title it would be done again."""

    agent: str
    scope: str
    title: str
    key: Key
    call: str  # its name and arguments
    at: str
    is_in_doubt: bool = False
    is_gone: bool = False


def effects_since(now: Mapping[str, AgentMoment], then: Mapping[str, AgentMoment]) -> list[LaterEffect]:
    """The effects that `now` knows and `then` does not, oldest first. A person's answer to a question is none."""
    found = []
    for path, latest in now.items():
        was = then.get(path, AgentMoment())
        agent = _with_ids(latest, _ids_of(was, latest))
        known = {name for task in was.plan.tasks for name in (task.id, task.text)}
        for key in (*agent.scopes, *(key for key in agent.past if key not in agent.scopes)):
            scope, before = _of(agent, key), _of(was, key)
            assert scope is not None
            is_gone = was.has_plan and key != ROOT and not key.startswith("_") and not known & {key, scope.title}
            for call in _new(scope, before):
                done = scope.done[call]
                if is_done_again(done):
                    at = scope.when.get(call, "")
                    said = f"{done.step}{done.call}"
                    found.append(LaterEffect(path, key, scope.title, call, said, at, is_gone=is_gone))
            for call, started in scope.started.items() if isinstance(scope, Scope) else ():
                found.append(LaterEffect(path, key, scope.title, call, f"{started.step}{started.call}", "", True))
    return sorted(found, key=lambda each: each.at or "~")


def joined(
    now: Mapping[str, AgentMoment],
    then: Mapping[str, AgentMoment],
    *,
    forgets: bool = False,
    reused: Reused | None = None,
) -> dict[str, AgentMoment]:
    """The agents as they were `then`, with the effects, doubts and answers of `now`. An agent that had not begun is as
    if it were new. Shares values with both.

    `forgets`: effects done since then are not on record, and will have another idempotency key. `reused`: results of
    later steps that equal calls return.
    """
    return {path: _joined(agent, then.get(path), forgets, reused or {}) for path, agent in now.items()}


def pack(agents: Mapping[str, AgentMoment], now: Mapping[str, AgentMoment] = MappingProxyType({})) -> Raw:
    """For a record: those that are not as they are `now`."""
    packed = {path: _packed(agent) for path, agent in agents.items()}
    changed = {path: raw for path, raw in packed.items() if path not in now or raw != _packed(now[path])}
    return Raw(msgspec.json.encode(changed))


def _packed(agent: AgentMoment) -> Raw:
    assert _AGENT.pack is not None
    return Raw(msgspec.json.encode(_AGENT.pack(agent)))


def apply(raw: Raw, agents: dict[str, AgentMoment]) -> None:
    """Let the agents of a run be those of a record. They stay the same objects, since the owner of the run has them.
    ValueError, with nothing changed, if the record does not fit."""
    for path, was in unpacked(raw, agents).items():
        for name in was.__struct_fields__:
            if name not in ("messages_at", "new_messages", "left_out", "logs"):
                setattr(agents[path], name, getattr(was, name))


def unpacked(raw: Raw, known: Collection[str]) -> dict[str, AgentMoment]:
    """The agents of a record, which are some of the `known` ones. ValueError if the record is broken."""
    if raw == NOTHING:
        return {}
    check_json(raw)
    assert _AGENT.unpack is not None
    try:
        found = {path: _AGENT.unpack(agent) for path, agent in _agents.decode(raw).items()}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not found.keys() <= set(known):
        raise ValueError("it has agents that the run does not have")
    for path, agent in found.items():
        check_agent(path, agent)
    return found


def check_agent(path: str, agent: AgentMoment) -> None:
    """ValueError for what no run leaves behind. Otherwise a run would fail over it later."""
    if agent.path != path:
        raise ValueError(f"its data for the agent {path!r} belongs to another agent or is not complete")
    if ROOT not in agent.scopes:
        raise ValueError(f"it has no list of own calls for the agent {path!r}")
    if agent.has_data and not isinstance(agent.data, dict):
        raise ValueError(f"the data of the agent {path!r} is not an object")
    for time in agent.ended_at:
        check_time(time)


def _joined(now: AgentMoment, then: AgentMoment | None, forgets: bool, reused: Reused) -> AgentMoment:
    was = then or AgentMoment(
        path=now.path, spawned_in=now.spawned_in, call=now.call, result=Kept() if now.path else None
    )  # without `args` no call of it is this one
    ids = _ids_of(was, now)
    now, reused = _with_ids(now, ids), _reused_with_ids(now, reused, ids)
    plan = _plan(now, was)
    scopes, past = dict[str, Scope](), dict[str, Past]()
    texts = {task.id: task.text for task in now.plan.tasks if task.id}
    ended = [key for path, key in reused if path == now.path]
    for key in dict.fromkeys((*was.scopes, *now.scopes, *was.past, *now.past, *ended)):
        if is_of_task(key) and not any(key in known for known in (now.scopes, now.results, now.past)):
            continue  # the task is done, and stays done
        steps = reused.get((now.path, key), {})
        latest, before = _of(now, key), _of(was, key)
        each = _scope(latest or before or Past(texts.get(key, ""), 0), was.scopes.get(key), before, steps, forgets)
        if isinstance(each, Scope):
            scopes[key] = each
        elif each.done or each.again:
            past[key] = each
    known = {task.id for task in plan.tasks}
    came = {key for key in (*scopes, *past) if key not in was.scopes and key not in was.past}
    came |= now.left.keys() | was.left.keys()
    left = {
        key: (scopes.get(key) or past[key]).title
        for key in (*scopes, *past)
        if key in came and is_of_item(key) and key not in known
    }
    results = {key: kept for key, kept in was.results.items() if key in now.results or not is_of_task(key)}
    return replace(
        was,
        plan=plan,
        has_plan=now.has_plan,
        adopted=now.adopted,
        highest_id=max(was.highest_id, now.highest_id),
        scopes=scopes,
        past=past,
        left=left,
        other_ids=now.other_ids,
        results=results,
        outputs=now.outputs,
        ended_at=now.ended_at,
        edits=now.edits,
        messages=now.messages,
        appended=now.appended,
        logs=now.logs,
        messages_at=now.messages_at,
        new_messages=[],
        forgotten=now.forgotten,
        input=now.input or was.input,
        result=was.result if now.path else None,
    )


def _ids_of(was: AgentMoment, now: AgentMoment) -> dict[str, str]:
    """By the id that an item has `now`, the one by which `was` knows it. Another return, in between, may have taken it
    out of the plan; then it has got a new id."""
    there = {*(task.id for task in was.plan.tasks), *was.scopes, *was.past}
    return {
        key: id
        for key, others in now.other_ids.items()
        for id in others
        if key not in there and id in there and _of(now, id) is None
    }


def _with_ids(now: AgentMoment, ids: Mapping[str, str]) -> AgentMoment:
    """`now`, with what items have done under these ids."""
    if not ids:
        return now
    scopes, other_ids = dict(now.scopes), dict(now.other_ids)
    for key, id in ids.items():
        scope = _of(now, key)
        other_ids[id] = [key, *(other for other in other_ids.pop(key) if other != id)]
        if scope is not None:
            scopes.pop(key, None)
            scopes[id] = (scope if isinstance(scope, Scope) else scope.opened(scope.title)).moved(id)
    past = {key: scope for key, scope in now.past.items() if key not in ids}
    return replace(now, scopes=scopes, past=past, other_ids=other_ids)


def _reused_with_ids(now: AgentMoment, reused: Reused, ids: Mapping[str, str]) -> Reused:
    """Results of steps under the new `ids`, also those from when an item had a former id: they are kept with its
    effects. The newer ones count."""
    newest = {former: key for key, others in now.other_ids.items() for former in others if _of(now, former) is None}
    found = dict[tuple[str, str], Mapping[Key, StepCompleted]]()
    for (path, key), steps in reused.items():
        if path == now.path:
            key = newest.get(key, key)
            key = ids.get(key, key)
        found[path, key] = {**found.get((path, key), {}), **steps}
    return found


def _of(agent: AgentMoment, key: str) -> Scope | Past | None:
    return agent.scopes.get(key) or agent.past.get(key)


def _new(scope: Scope | Past, before: Scope | Past | None) -> Iterator[Key]:
    """The effects with an outcome that `before` does not have."""
    known: Mapping[Key, StepCompleted] = before.done if before is not None else {}
    return (call for call, done in scope.done.items() if done.effect and call not in known)


def _taken_back(latest: Scope | Past, before: Scope | Past) -> dict[Key, StepCompleted]:
    """The effects that were on record `before`, and that are not on record now because they were to be done again."""
    under_way = latest.started if isinstance(latest, Scope) else {}
    return {
        call: done
        for call, done in before.done.items()
        if done.effect
        and call not in latest.done
        and call not in under_way
        and latest.again.get(call, 0) > before.again.get(call, 0)
    }


def _scope(
    latest: Scope | Past,
    was: Scope | None,
    before: Scope | Past | None,
    steps: Mapping[Key, StepCompleted],
    forgets: bool,
) -> Scope | Past:
    """One scope: open if it `was`, or while something about it is in doubt. `before` is the same, open or ended."""
    gone = {call for call in _new(latest, before) if is_done_again(latest.done[call])} if forgets else set[Key]()
    effects = {call: done for call, done in latest.done.items() if done.effect and call not in gone}
    again = dict(latest.again) | {call: latest.again.get(call, 0) + 1 for call in gone}
    when = {call: at for call, at in latest.when.items() if call not in gone}
    if before is not None and (back := _taken_back(latest, before)):
        effects |= back
        when |= {call: before.when[call] for call in back if call in before.when}
    last = max(latest.last_number, before.last_number if before is not None else 0)
    steps = _numbered(steps, was.numbers if was is not None else {}, last)
    last += len(steps)
    started = latest.started if isinstance(latest, Scope) else {}
    answers = latest.answers if isinstance(latest, Scope) else {}
    if was is None and not (started or answers):
        return Past(latest.title, last, dict(steps) | effects, latest.settled, when, again)
    opened = was or Scope(title=latest.title)
    done = dict(steps) | {call: step for call, step in opened.done.items() if not step.effect} | effects
    numbers = dict(opened.numbers) | {call: step.no for call, step in (*done.items(), *started.items())}
    return Scope(
        title=opened.title,
        done=done,
        started=started,
        answers=answers,
        settled=latest.settled,
        when=when,
        again=again,
        failed={call: error for call, error in opened.failed.items() if call not in done and call not in started},
        promoted=opened.promoted,
        progress=opened.progress,
        numbers=numbers,
        last_number=last,
        spent=opened.spent,
    )


def _numbered(steps: Mapping[Key, StepCompleted], known: Mapping[Key, int], last: int) -> dict[Key, StepCompleted]:
    """With numbers after the `last`. Those that they had may belong to other calls: a scope that is done again counts
    from 1."""
    return {call: replace(step, no=known.get(call) or last + n) for n, (call, step) in enumerate(steps.items(), 1)}


def _plan(now: AgentMoment, was: AgentMoment) -> Plan:
    """The earlier plan. An item keeps the id that it has got since: its effects are known by it."""
    plan = was.plan.copy()
    known = {task.id for task in plan.tasks}
    nameless: dict[str, list[Any]] = {}
    for task in plan.tasks:
        if task.id is None:
            nameless.setdefault(task.text, []).append(task)
    for task in now.plan.tasks:
        if task.id and task.id not in known and nameless.get(task.text):
            plan.name(nameless[task.text].pop(0), task.id)
    return plan
