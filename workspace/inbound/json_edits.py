"""The JSON files that a person may edit in part.

In state.json it is `data`. In a file of steps/ a person may change the `result`, or add `"redo": true`. The rest is
Satchel's, and says what has happened.

The data are merged from three versions (`merge`): the base as it was written, the run's version, and the file of the
person.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ... import schemas
from ...schemas import dotted, short
from ..base import SCHEMAS, Copy, InvalidFile, Refused, UsageError, decode, is_blank, stamp
from ..formats import jsontext
from ..journal import NOTHING, OfCall, Patch, StepCompleted, StepEdit, StepFailed, StepStarted
from ..state import ABSENT, AgentMoment, Moment, json_patch, same
from ..store import Store
from ..views import projection, schema_files
from .findings import (
    ConflictPlace,
    Edit,
    FileConflict,
    Looking,
    RejectedFile,
    StillMoving,
    ahead,
    foreign,
    is_of_run,
    object_of_run,
    sha,
)
from .rewind_record import note_copy

_TOLD = 5


def look_at_state(looking: Looking, agent: AgentMoment) -> None:
    path = agent.folder + projection.STATE
    if looking.moment.is_new:
        _before_the_run(looking, path)
        return
    found = looking.settled(path, partial(_is_ours, looking))
    if found is not None:
        looking.noticed.versions[path] = found.version
    if found is None or is_blank(found.data):
        looking.find(path, f"was {'missing' if found is None else 'empty'}; it is restored")
    else:
        judge(looking, agent, found.data)


def _is_ours(looking: Looking, data: bytes) -> bool:
    """Whether this is what the run has written, at some moment."""
    return stamp.read_json(data).untouched and is_of_run(data, looking.moment.run_id)


def judge(looking: Looking, agent: AgentMoment, data: bytes) -> None:
    """The finding about a content of the file, in it or about to be saved."""
    path = agent.folder + projection.STATE
    if looking.moment.is_new:
        raise no_journal(path, None)
    try:
        if not note_copy(looking, agent, path, data, _usable):
            looking.judge(agent, path, data, stamp.read_json(data), _is_ours(looking, data), edited)
    except (InvalidFile, Refused) as error:
        looking.refuse(path, error, data)


def _usable(looking: Looking, agent: AgentMoment, path: str, data: bytes, copy: Copy) -> Raw | None:
    """The data of a copy from a checkpoint, for the state type as it is now. What does not fit is refused if a person
    has changed it."""
    text = decode(data, path)
    found = object_of_run(data, path, looking.moment.run_id, "edit what is inside `data` only")
    schema = str(found.get("$schema", ""))
    _check_owner(looking.moment, agent, path, schema[schema.find(".satchel/") :])
    if found.get("data_version", 1) != agent.data_version or found.get("data") is None:
        return None
    try:
        _validate(looking, agent, path, found, text)
    except (InvalidFile, Refused):
        if copy.untouched:
            return None
        raise
    return Raw(msgspec.json.encode(found["data"]))


def edited(looking: Looking, agent: AgentMoment, path: str, data: bytes) -> None:
    """The finding about a file that differs from what the run wrote: an edit, a question, or nothing new."""
    noticed, stamped = looking.noticed, stamp.read_json(data).stamp
    seq = stamped.seq if stamped else None
    found = object_of_run(data, path, looking.moment.run_id, "edit what is inside `data` only")
    base = _base(looking, agent, seq)
    _check_beside_data(looking, agent, path, found, base)
    if "data" not in found:
        looking.find(path, "had lost its `data`; it is restored")
        return
    choice = looking.choice(path)
    was = agent.data if choice == "edited" else _before(looking, base, found["data"]) if base else ABSENT
    merged = merge(was, agent.data, found["data"], prefer=choice if choice in ("ours", "theirs") else None)
    if merged.conflicts:
        base_file = projection.state_file(base.moment, base.agent) if base else None
        ours = projection.state_file(looking.moment, agent)
        noticed.questions.append(FileConflict(path, tuple(map(_place, merged.conflicts)), base_file, ours, data))
        return
    change = json_patch.diff(agent.data, merged.value)
    text = decode(data, path)
    if looking.is_rebuilt:  # the run would continue with the data of this file
        _validate(looking, agent, path, found, text)
    if choice == "ours":
        noticed.overruled.append(RejectedFile(path, Refused("the run's version was chosen", path=path), data))
    if not change:
        looking.find(
            path, "was changed but has the same content as the run; Satchel writes the file again", settles=True
        )
        return
    _validate(looking, agent, path, found | {"data": merged.value}, text)
    looking.take(Edit(looking.edited(path, data, _say(change), agent.path, base=seq, patch=change)), data)


def _place(conflict: Conflict) -> ConflictPlace:
    """Texts as they are, all other values as JSON."""
    sides = [conflict.base, conflict.ours, conflict.theirs]
    is_text = all(each is ABSENT or isinstance(each, str) for each in sides)
    texts = [None if each is ABSENT else each if is_text else jsontext.dump(each).rstrip() for each in sides]
    return ConflictPlace(str(conflict), *texts)


class _Base(NamedTuple):
    """What the file was made from."""

    moment: Moment
    agent: AgentMoment


def _base(looking: Looking, agent: AgentMoment, seq: int | None) -> _Base | None:
    """None if the file doesn't say, or the journal doesn't reach back to it."""
    moment = looking.history.at(seq) if seq is not None else None
    was = moment.agents.get(agent.path) if moment else None
    return _Base(moment, was) if moment and was else None


def _before(looking: Looking, base: _Base, edited: Any) -> Any:
    """The data before the edit. Where the agent had none yet, it began with those of its state type, of which the
    person saw nothing: what the file leaves out was not removed."""
    if base.agent.has_data or not isinstance(edited, dict):
        return base.agent.data
    return _within(edited, looking.history.first_data(base.agent.path, base.moment))


def _within(edited: Any, first: Any) -> Any:
    """The part of `first` that `edited` has, too."""
    if not (isinstance(edited, dict) and isinstance(first, dict)):
        return first
    return {key: _within(edited[key], value) for key, value in first.items() if key in edited}


def _check_beside_data(
    looking: Looking, agent: AgentMoment, path: str, found: dict[str, Any], base: _Base | None
) -> None:
    """Refused if the file is another agent's, or if anything but `data` was changed."""
    was = [_state_file(looking.moment, agent, path)]
    if base is not None:
        was.append(_state_file(base.moment, base.agent, path))
    _check_owner(looking.moment, agent, path, found.get("$schema", was[0]["$schema"]))
    if not looking.is_rebuilt:  # then the rest is known only from this file
        _check_the_rest(path, found, was, ("data",), "and only `data` is yours", _REMEDIES)


def _state_file(moment: Moment, agent: AgentMoment, path: str) -> dict[str, Any]:
    found: dict[str, Any] = jsontext.load(projection.state_file(moment, agent).decode(), path)
    return found


def _check_owner(moment: Moment, agent: AgentMoment, path: str, schema: Any) -> None:
    """Nothing else in the file names its owner."""
    for other in moment.agents.values():
        known = projection.schema_of_state(other)
        if other.path != agent.path and schema in (known, known.lstrip("./")):
            whose = f"the agent {other.path}" if other.path else "the run's own agent"
            raise foreign(path, f"the file belongs to {whose}: its schema is {short(schema)}")


def _check_the_rest(
    path: str,
    found: dict[str, Any],
    was: Sequence[dict[str, Any]],
    yours: Collection[str],
    why: str,
    remedies: Mapping[str, str],
) -> None:
    """Everything except `yours` must be as Satchel has written it, now or when the file was written."""
    for key, value in found.items():
        if key in ("at", "$schema", *yours):
            continue
        if not any(key in file and same(file[key], value) for file in was):
            raise Refused(
                f"`{key}` can't be changed here",
                path=path,
                why=f"it says {short(value)}, {why}",
                remedy=remedies.get(key, remedies[""]),
            )


_REMEDIES = {
    "": "put your change inside `data`",
    "status": "to resume or stop the run, use `satchel resume` or `satchel pause`",
    "input": "the run keeps the arguments that it began with; start a new run for others",
    "result": "to have the agent return another result, add an item to todo.md or redo a step",
    "open": "to have an item done again, untick it in todo.md",
    "waiting_for": "answer in approvals/, or with `satchel answer`",
}
_REMEDIES_OF_STEP = {"": "edit `result`, or add `redo`: true to have the step done again"}


def _validate(looking: Looking, agent: AgentMoment, path: str, whole: dict[str, Any], text: str) -> None:
    """Against the schema of the agent's state type. Where the agent's code may run, also against the type."""
    has_data = agent.has_data or whole["data"] is not None  # null is right until the agent is entered
    if has_data and looking.check_data is not None:
        whole = whole | {"data": looking.check_data.kept(agent.path, whole["data"])}
    found = schemas.problems(
        "state", whole, place=jsontext.place_of(text), data_schema=_schema(looking, agent) if has_data else None
    )
    if found:
        raise InvalidFile(path, found)
    if has_data and looking.check_data is not None:
        try:
            looking.check_data(agent.path, whole["data"])
        except UsageError as error:
            raise Refused(
                "the agent's state type does not accept this", path=path, why=error.why, remedy="correct `data`"
            ) from error


def _schema(looking: Looking, agent: AgentMoment) -> dict[str, Any] | bool | None:
    """The schema of the state type, or where the agent's code does not run the copy that it has written last. None if
    that is missing or damaged: then the next start asks the type."""
    if looking.check_data is not None and (own := looking.check_data.schema(agent.path)) is not None:
        return own
    path = f"{SCHEMAS}/{agent.folder}data.json"
    try:
        found = jsontext.load(decode(looking.store.read(path).data, path), path)
    except (FileNotFoundError, InvalidFile):
        return None
    return found if isinstance(found, dict | bool) else None


def _say(change: Patch) -> list[str]:
    said = []
    for each in change[:_TOLD]:
        place = "data" + str(each["path"]).replace("/", ".")
        verb = {"add": "is now", "replace": "is now", "remove": "is removed"}[str(each["op"])]
        said.append(f"{place} {verb}" + (f" {short(each['value'])}" if "value" in each else ""))
    if len(change) > _TOLD:
        said.append(f"and {len(change) - _TOLD} more changes of the data")
    return said


def _before_the_run(looking: Looking, path: str) -> None:
    """A state that exists before there is a journal."""
    try:
        stamped = stamp.read_json(looking.store.read(path).data)
    except FileNotFoundError:
        return
    looking.refuse(path, no_journal(path, stamped.stamp.seq if stamped.stamp else None))


def no_journal(path: str, seq: int | None) -> Refused:
    if seq is None:
        return Refused(
            "exists before the first run",
            path=path,
            why="the state begins as the agent's state type says",
            remedy="move it away, and give the agent its input through settings or a step",
        )
    return Refused(
        f"belongs to a run whose journal is not here (the file is at record {seq})",
        path=path,
        remedy="copy the folders journal/ and checkpoints/ back, or move this file away to start from the beginning",
    )


def look_at_steps(looking: Looking, agent: AgentMoment) -> None:
    store, noticed = looking.store, looking.noticed
    noticed.shown[agent.path] = {}
    expected = {file.path: file.record for file in projection.step_files(agent, projection.steps_shown(store))}
    for folder in store.folders(agent.folder + projection.STEPS):
        for entry in store.list(folder):
            if projection.is_step_file(entry.path):  # others belong to a desktop or an editor
                with suppress(StillMoving):
                    _look_at_step(looking, agent, entry.path, expected.get(entry.path))


def _look_at_step(looking: Looking, agent: AgentMoment, path: str, record: OfCall | None) -> None:
    moment, noticed = looking.moment, looking.noticed
    if record is not None and looking.is_as_listed(path):
        noticed.versions[path], noticed.shown[agent.path][path] = looking.listed[path], record
        return
    found = looking.settled(path, partial(_is_ours, looking))
    if found is None:
        return
    data, stamped = found.data, stamp.read_json(found.data)
    noticed.versions[path] = found.version
    if (later := ahead(path, stamped, moment)) is not None:
        looking.refuse(path, later)
    elif _is_ours(looking, data) or is_blank(data):
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
            _edited_step(looking, agent, path, data, record)
            _let_go(looking, agent, path, record)
        except (InvalidFile, Refused) as refused:
            looking.refuse(path, refused, data)


def _let_go(looking: Looking, agent: AgentMoment, path: str, record: OfCall | None) -> None:
    """Write the file again if it still shows something afterwards, else remove it."""
    if record is None:
        looking.noticed.leftovers.append(path)
    else:
        looking.noticed.shown[agent.path][path] = msgspec.structs.replace(record)  # another object: not up to date


def _edited_step(looking: Looking, agent: AgentMoment, path: str, data: bytes, record: OfCall | None) -> None:
    moment = looking.moment
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
    _check_the_rest(path, found, [was], ("result", "redo"), "which is not what happened", _REMEDIES_OF_STEP)
    redo = found.get("redo", False)
    if not isinstance(redo, bool):
        raise Refused("`redo` must be true or false", path=path, why=f"it says {short(redo)}", remedy="write `true`")
    is_new = "result" in found and not same(found["result"], was["result"])
    if not redo and not is_new:
        looking.find(path, "was changed but has the same content; Satchel writes the file again")
        return
    _check_wish(path, record, redo=redo, is_new=is_new)
    if is_new:
        _check_result(looking.store, path, data, found["result"], record)
    result = NOTHING if redo else Raw(jsontext.dump(found["result"]).encode())
    step = StepEdit(scope=record.scope, key=record.key, redo=redo, result=result)
    says = [_say_of_step(agent, record, redo, found)]
    looking.take(Edit(looking.edited(path, data, says, agent.path, step=step)), data)


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


def _check_result(store: Store, path: str, data: bytes, result: Any, record: OfCall) -> None:
    """InvalidFile if the result is not of the type that the call returns."""
    name = record.schema if isinstance(record, StepStarted | StepCompleted | StepFailed) else ""
    if not name or (schema := schema_files.load_result(store, name)) is None:
        return
    place = jsontext.place_of(decode(data, path))
    if found := schemas.of_result(schema, result, lambda where: place(("result", *where))):
        raise InvalidFile(path, found)


def _say_of_step(agent: AgentMoment, record: OfCall, redo: bool, found: dict[str, Any]) -> str:
    title = agent.scopes[record.scope].title
    call = f"{record.step}{record.call}" + (f" of {title!r}" if title else "")
    if not redo:
        return f"{call} now counts as having returned {short(found['result'])}"
    is_effect = not isinstance(record, StepCompleted | StepFailed) or record.effect
    return f"{call} will be done again" + (", although it is an effect" if is_effect else "")


# Three versions of the data


class Conflict(Struct, frozen=True):
    """A value that can't be merged: both sides changed it, or it is gone and there is no base that tells whether that
    was on purpose.

    `str()` is one line for people.
    """

    place: str
    base: Any
    ours: Any
    theirs: Any
    why: Literal["both_changed", "removed_without_base"]

    def __str__(self) -> str:
        if self.why == "removed_without_base":
            now = "no longer has it" if self.theirs is ABSENT else f"says {short(self.theirs)}"
            return f"{self.place}: the run has {short(self.ours)}; the file {now}, and what it was before is not known"
        was = "was not there" if self.base is ABSENT else f"was {short(self.base)}"
        made = "removed it" if self.ours is ABSENT else f"set it to {short(self.ours)}"
        now = "no longer has it" if self.theirs is ABSENT else f"says {short(self.theirs)}"
        return f"{self.place}: it {was}; the run has {made}, the file {now}"


class Merged(NamedTuple):
    """`value` has our version wherever there is a conflict."""

    value: Any
    conflicts: tuple[Conflict, ...]


def merge(base: Any, ours: Any, theirs: Any, *, prefer: Literal["ours", "theirs"] | None = None) -> Merged:
    """Join the edits in `theirs`, a file made from `base`, with what the run has changed since.

    Mappings are merged key by key, in the order of theirs. Lists that both only appended to are joined, unless ours
    already has what theirs appended: after a crash the same edit may come twice.

    Without a base (ABSENT) theirs is taken, except for what it lacks: a key, an element of a list, or all of a text,
    list or mapping that is not empty. It is unknown whether that was removed on purpose, so it is a conflict.

    `prefer` resolves all conflicts.
    """
    merging = _Merging(prefer)
    value = merging.adopt("data", ours, theirs) if base is ABSENT else merging.merge("data", base, ours, theirs)
    return Merged(value, tuple(merging.conflicts))


class _Merging:
    def __init__(self, prefer: Literal["ours", "theirs"] | None):
        self.prefer = prefer
        self.conflicts: list[Conflict] = []

    def merge(self, place: str, base: Any, ours: Any, theirs: Any) -> Any:
        if same(ours, theirs):
            return theirs
        if same(base, theirs):
            return ours
        if same(base, ours):
            return theirs
        if type(ours) is dict and type(theirs) is dict and (type(base) is dict or base is ABSENT):
            before = {} if base is ABSENT else base
            keys = [*theirs, *(key for key in ours if key not in theirs)]
            merged = {
                key: self.merge(
                    below(place, key), before.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT)
                )
                for key in keys
            }
            return {key: value for key, value in merged.items() if value is not ABSENT}
        if _extends(base, ours) and _extends(base, theirs):
            more = theirs[len(base) :]
            return ours if _holds(ours[len(base) :], more) else ours + more
        return self._ask(Conflict(place, base, ours, theirs, "both_changed"))

    def adopt(self, place: str, ours: Any, theirs: Any) -> Any:
        if same(ours, theirs):
            return theirs
        if type(ours) is dict and type(theirs) is dict and (theirs or not ours):
            keys = [*theirs, *(key for key in ours if key not in theirs)]
            merged = {
                key: self.adopt(below(place, key), ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in keys
            }
            return {key: value for key, value in merged.items() if value is not ABSENT}
        if _lacks(theirs, ours):
            return self._ask(Conflict(place, ABSENT, ours, theirs, "removed_without_base"))
        return theirs

    def _ask(self, conflict: Conflict) -> Any:
        if self.prefer is None:
            self.conflicts.append(conflict)
        return conflict.theirs if self.prefer == "theirs" else conflict.ours


def below(place: str, key: str) -> str:
    """The place of a key: `data.a`, `data["a.txt"]`."""
    name = dotted((key,))
    return f"{place}{name}" if name.startswith("[") else f"{place}.{name}"


def _extends(base: Any, value: Any) -> bool:
    """Whether `value` is the list `base`, possibly with more at its end."""
    return type(base) is list and type(value) is list and same(base, value[: len(base)])


def _holds(values: list[Any], run: list[Any]) -> bool:
    """Whether `run` occurs in `values`, in one piece."""
    return any(same(values[start : start + len(run)], run) for start in range(len(values) - len(run) + 1))


def _lacks(theirs: Any, ours: Any) -> bool:
    """Whether `theirs` lacks something of `ours`. A number or a shorter text is only another value."""
    if ours is ABSENT:
        return False
    if theirs is ABSENT:
        return True
    if type(ours) is list and type(theirs) is list:
        left = iter(theirs)
        return not all(any(same(value, other) for other in left) for value in ours)
    if type(ours) in (dict, list):
        return bool(ours)
    return bool(ours) and type(ours) is str and (theirs is None or theirs in ("", [], {}))
