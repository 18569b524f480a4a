"""steps/: a person may change the `result` in a file, or add `"redo": true`. The rest says what has happened."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from .... import schemas
from ....schemas import short
from ...base import InvalidFile, Refused, decode, stamp
from ...formats import jsontext
from ...journal.records import NOTHING, Edited, OfCall, StepCompleted, StepEdit, StepFailed, StepStarted
from ...state import AgentMoment, json_patch
from ...store import Store
from ...views import projection, schema_files
from .findings import Edit, Looking, StillMoving, ahead, foreign, is_blank, is_of_run, object_of_run, sha


def look(looking: Looking, agent: AgentMoment) -> None:
    store, noticed = looking.store, looking.noticed
    noticed.shown[agent.path] = {}
    expected = {file.path: file.record for file in projection.step_files(agent, projection.steps_shown(store))}
    for folder in store.folders(agent.folder + projection.STEPS):
        for entry in store.list(folder):
            if projection.is_step_file(entry.path):  # others belong to a desktop or an editor
                with suppress(StillMoving):
                    _look(looking, agent, entry.path, expected.get(entry.path))


def _look(looking: Looking, agent: AgentMoment, path: str, record: OfCall | None) -> None:
    store, moment, noticed = looking.store, looking.moment, looking.noticed
    if record is not None and looking.is_as_listed(path):
        noticed.versions[path], noticed.shown[agent.path][path] = looking.listed[path], record
        return
    try:
        data, version = store.read(path)
    except FileNotFoundError:
        return
    stamped = stamp.read_json(data)
    is_ours = stamped.untouched and is_of_run(data, moment.run_id)
    if not is_ours:
        found = looking.steady(path)
        if found is None:
            return
        data, version = found
        stamped = stamp.read_json(data)
    noticed.versions[path] = version
    if (later := ahead(path, stamped, moment)) is not None:
        looking.refuse(path, later)
    elif is_ours or is_blank(data):
        assert is_blank(data) or stamped.stamp is not None
        if record is None:
            noticed.leftovers.append(path)
        elif stamped.stamp and projection.step_file(moment, record, stamped.stamp[:2]) == data:
            noticed.shown[agent.path][path] = record
        elif is_blank(data):
            looking.find(path, "was empty; it is restored")
    elif looking.is_merged(agent, path, sha(data)):
        looking.find(path, "contains an edit that was merged before; Satchel writes the file again")
        _let_go(looking, agent, path, record)
    else:
        try:
            _edited(looking, agent, path, data, record)
            _let_go(looking, agent, path, record)
        except (InvalidFile, Refused) as refused:
            looking.refuse(path, refused, data)


def _let_go(looking: Looking, agent: AgentMoment, path: str, record: OfCall | None) -> None:
    """Write the file again if it still shows something afterwards, else remove it."""
    if record is None:
        looking.noticed.leftovers.append(path)
    else:
        looking.noticed.shown[agent.path][path] = msgspec.structs.replace(record)  # another object: not up to date


def _edited(looking: Looking, agent: AgentMoment, path: str, data: bytes, record: OfCall | None) -> None:
    moment, noticed = looking.moment, looking.noticed
    found = object_of_run(data, path, moment.run_id, "edit `result` only, or add `redo`: true")
    if isinstance(found.get("agent", ""), str) and found.get("agent", "") != agent.path:
        raise foreign(path, f"it says it belongs to the agent {short(found.get('agent', ''))}")
    if record is None:
        raise Refused(
            "belongs to a step whose item is no longer open",
            path=path,
            why="its result is committed",
            remedy="to have the item done again, untick it in todo.md",
        )
    was: dict[str, Any] = jsontext.load(projection.step_file(moment, record).decode(), path)
    _check_the_rest(path, found, was)
    redo = found.get("redo", False)
    if not isinstance(redo, bool):
        raise Refused("`redo` must be true or false", path=path, why=f"it says {short(redo)}", remedy="write `true`")
    is_new = "result" in found and not json_patch.same(found["result"], was["result"])
    if not redo and not is_new:
        looking.find(path, "was changed but has the same content; Satchel writes the file again")
        return
    _check_wish(path, record, redo=redo, is_new=is_new)
    if is_new:
        check_result(looking.store, path, data, found["result"], record)
    result = NOTHING if redo else Raw(jsontext.dump(found["result"]).encode())
    trace = looking.store.trace(path)
    noticed.edits.append(
        Edit(
            Edited(
                agent=agent.path,
                file=path,
                by=trace.by,
                saved=trace.at,
                sha=sha(data),
                step=StepEdit(scope=record.scope, key=record.key, redo=redo, result=result),
                says=(_say(agent, record, redo, found),),
            )
        )
    )


def _check_the_rest(path: str, found: dict[str, Any], was: dict[str, Any]) -> None:
    """Everything else in the file must say what happened."""
    for key, value in found.items():
        if key not in ("at", "result", "redo", "$schema") and not (key in was and json_patch.same(was[key], value)):
            raise Refused(
                f"`{key}` can't be changed here",
                path=path,
                why=f"it says {short(value)}, which is not what happened",
                remedy="edit `result`, or add `redo`: true to have the step done again",
            )


def _check_wish(path: str, record: OfCall, *, redo: bool, is_new: bool) -> None:
    """Refused for a step that is to be done again and has another result, and for a recorded answer."""
    if redo and is_new:
        raise Refused(
            "has both a changed `result` and `redo`: true",
            path=path,
            why="a step can be done again or get a result, not both",
            remedy="remove one of the two",
        )
    if not redo and isinstance(record, StepCompleted) and record.how == "answered":
        raise Refused(
            "a recorded answer can't be changed",
            path=path,
            why="the agent already used it",
            remedy="add `redo`: true to have the question asked again",
        )


def check_result(store: Store, path: str, data: bytes, result: Any, record: OfCall) -> None:
    """InvalidFile if the result is not of the type that the call returns."""
    name = record.schema if isinstance(record, StepStarted | StepCompleted | StepFailed) else ""
    if not name or (schema := schema_files.load_result(store, name)) is None:
        return
    place = jsontext.place_of(decode(data, path))
    if found := schemas.of_result(schema, result, lambda where: place(("result", *where))):
        raise InvalidFile(path, found)


def _say(agent: AgentMoment, record: OfCall, redo: bool, found: dict[str, Any]) -> str:
    title = agent.scopes[record.scope].title
    call = f"{record.step}{record.call}" + (f" of {title!r}" if title else "")
    if not redo:
        return f"{call} now counts as having returned {short(found['result'])}"
    is_effect = not isinstance(record, StepCompleted | StepFailed) or record.effect
    return f"{call} will be done again" + (", although it is an effect" if is_effect else "")
