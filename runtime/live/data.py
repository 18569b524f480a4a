"""The data of one running agent: its state as an object of the user's type, with the uncommitted changes of the current
scope, and its plan.

Each of several open scopes changes copies of its own until its commit makes the same changes in the agent's. Two scopes
may both change what is inside a container, but only one of them may replace it by another. Items that a scope adds, and
items without an id that it refers to, get an id at once. No other item gets it, and no other code sees it before the
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ...schemas import Where
from ...workspace.base import AgentError, NotSerializable, Refused, SatchelError, UsageError
from ...workspace.journal import Patch
from ...workspace.plan import Plan, Splice, Task
from ...workspace.state import KnownText, contradiction, json_patch
from ..agent import (
    Codec,
    Part,
    check_depth,
    check_numbers,
    encode,
    encode_of_any_depth,
    fingerprint,
    put_aside,
    put_back,
    round_trip,
    unchecked,
)

_STATE = "run.state"
_REMEMBERED = 4


class CommittedChange(NamedTuple):
    """The change of the recorded data in a commit, and the resulting state as JSON."""

    patch: Patch
    state: bytes
    has_null: bool  # in the state, if only in a text


class _Said(NamedTuple):
    """The content of an object at some time: as JSON, and in a form that is faster to compare, if there is one."""

    text: bytes
    mark: bytearray | None

    def else_of(self, value: Any, buffer: bytearray) -> bytes | None:
        """The JSON of `value` if it differs. NotSerializable if it differs and has the same JSON. `buffer` is used."""
        if self.mark is not None and fingerprint(value, buffer) and buffer == self.mark:
            return None
        text = unchecked(value, _STATE)
        if text != self.text:
            return text
        if b"null" in text:
            check_numbers(value, _STATE)
        return None


class LiveState:
    def __init__(self, codec: Codec, whole: Part | None = None, *, keeps_unknown: bool = False):
        """`keeps_unknown`: what the type does not know stays on record (`@agent(unknown="keep")`)."""
        self.codec, self.keeps_unknown = codec, keeps_unknown
        self.whole = whole or Part.whole(codec)  # known by its parts, as far as they were looked at
        self.value: Any = None
        self._committed = _Said(b"", None)  # what the state was at the last commit
        self._mark, self._buffer = bytearray(), bytearray()  # that of `_committed`, if it has one; to compare with
        self._has_null = False  # there, if only in a text
        self._recorded = KnownText(b"")  # the data on record as JSON, which may lack what the type has a default for
        self._aside: list[tuple[Where, Any]] = []  # there, and unknown to the type
        self._left: list[tuple[Any, _Said]] = []  # objects that were the state before

    def restore(self, data: Any, path: str) -> None:
        """Start again with the recorded `data`, in a new object. `path` is the file that shows them. After a refusal
        there is no object."""
        self._leave()
        self.value = None
        self._recorded = KnownText(unchecked(data, "the data"))
        try:
            self.value = self.codec.decode(self._recorded.text)
        except UsageError as error:
            raise Refused(
                "the data of this run does not fit the agent's state type",
                path=path,
                why=error.why,
                remedy="give the agent a `@migration` for the data, or correct `data` in the file",
            ) from error
        self._aside = put_aside(self.codec.unknown_keys(data), data) if self.keeps_unknown else []
        self._committed = _Said(encode_of_any_depth(self.value, "the state"), None)
        self._has_null = b"null" in self._committed.text

    def fresh(self, data: Any, path: str) -> LiveState:
        """Another one of the same type, with these recorded data."""
        fresh = LiveState(self.codec, self.whole, keeps_unknown=self.keeps_unknown)
        fresh.restore(data, path)
        return fresh

    @property
    def is_changed(self) -> bool:
        """Whether it was changed since the last commit."""
        return self.value is not None and self._committed.else_of(self.value, self._buffer) is not None

    def _leave(self) -> None:
        """The object is no longer the state. A change of it, by code that still holds it, would be lost. So its content
        is remembered: of the first such object, and of the last few."""
        if self.value is None:
            return
        with suppress(UsageError, NotSerializable):  # what could not be kept can't be compared
            mark = bytearray()
            has_mark = fingerprint(self.value, mark)
            encode = unchecked if has_mark else encode_of_any_depth  # JSON alone does not show a NaN
            self._left.append((self.value, _Said(encode(self.value, "the state"), mark if has_mark else None)))
            del self._left[1 : 1 - _REMEMBERED]

    def take_leave(self, other: LiveState, change: CommittedChange) -> None:
        """Remember the object of a copy that has committed `change`: it is no longer the state, either."""
        self._left.append((other.value, _Said(change.state, None)))
        del self._left[1 : 1 - _REMEMBERED]

    def _check_left(self) -> None:
        """AgentError if one of these objects was changed."""
        for value, said in self._left:
            now = said.else_of(value, self._buffer)
            if now is not None:
                raise AgentError(
                    f"run.state{_changed(said.text, now)} was changed in an object that is no longer the state",
                    why="after a failure or an edit run.state is a new object, so this change would be lost",
                    remedy="read run.state where you change it; keep neither run.state nor a part of it in a "
                    "variable from one item to the next",
                )

    def change(self) -> CommittedChange:
        """The change that a commit makes to the recorded data. UsageError or NotSerializable, with the place, if what
        has changed could not be loaded or would come back as something else."""
        self._check_left()
        round_trip.check_attributes(self.value, self.codec.kind, _STATE)
        state = _of_object(unchecked(self.value, _STATE), self.value, _STATE)
        if state == self._committed.text:
            state, patch = self._committed.text, []
        else:
            patch = self._recorded.change_to(put_back(state, self._aside) if self._aside else state)
            if self._recorded.was_unusual:
                round_trip.check(self.whole, self.value, _STATE)
        has_null = self._has_null  # then a NaN in its place changes no byte
        for each in patch:
            path, value = str(each["path"]), each.get("value")
            text = bytes(value) if isinstance(value, Raw) else b""
            check_depth(text, f"{_STATE}{path.replace('/', '.')}", around=path.count("/"))
            has_null = has_null or b"null" in text
        if has_null := has_null and b"null" in state:  # a search through all of it costs as much as half its encoding
            check_numbers(self.value, _STATE)
        round_trip.check_change(self.whole, self.value, patch, _STATE)
        return CommittedChange(patch, state, has_null)

    def committed(self, change: CommittedChange) -> None:
        if change.state is not self._committed.text:
            self._committed, self._has_null = _Said(change.state, None), change.has_null

    def handed_over(self) -> None:
        """Code of the agent now runs that may change the state where it must not: make the next check cheap."""
        if self._committed.mark is None and fingerprint(self.value, self._mark):
            self._committed = self._committed._replace(mark=self._mark)

    def check_unchanged(self, when: str) -> None:
        """AgentError if it was changed since the last commit."""
        self._check_left()
        state = None if self.value is None else self._committed.else_of(self.value, self._buffer)
        if state is None:
            return
        raise AgentError(
            f"run.state{_changed(self._committed.text, state)} was changed outside a scope",
            why=f"noticed {when}, and a crash would lose it",
            remedy="change run.state in an item's function, or in one called with run.scope(...)",
        )


def _changed(was: bytes, now: bytes) -> str:
    """The first place where the two differ, in the terms of the agent's code."""
    changes = KnownText(was).change_to(now)
    return str(changes[0]["path"]).replace("/", ".") if changes else ""


def first_state(state: Any, codec: Codec) -> bytes:
    """The state of a new agent as JSON. UsageError if that is no object, because editors and migrations need one, or if
    a default does not fit its own field."""
    data = _of_object(encode(state, "the state"), state, "the state")
    round_trip.load(Part.whole(codec), state, "the state")
    return data


def _of_object(data: bytes, state: Any, what: str) -> bytes:
    if not data.startswith(b"{"):
        raise UsageError(
            f"{what} is not an object",
            why=f"it is a {type(state).__name__}",
            remedy="let it be a pydantic model, a dataclass, a TypedDict or a dict, and put the value into it",
        )
    return data


_CONTAINERS = (dict, list, tuple, set, frozenset)
_LEAVES = frozenset((str, int, float, bool, type(None)))


class _Seen(Struct):
    """A container, and those in it by their keys in JSON. Elements of lists are left out: a list is compared as a
    whole."""

    value: Any
    inside: dict[str, _Seen]


class Containers:
    """The containers of a value as it is now. They are kept alive, so that no new one gets the place of an old one in
    memory."""

    def __init__(self, value: Any):
        self._root = _seen(value)

    def places(self, value: Any, patch: Patch) -> Iterator[str]:
        """The places that `patch` changes in the `value` as it has become. A change in a container that has replaced
        another one changes the place of that container."""
        for change in patch:
            yield self._place(value, str(change["path"]))

    def _place(self, value: Any, path: str) -> str:
        seen, place = self._root, ""
        for part in json_patch.split(path)[:-1]:
            if (inside := seen.inside.get(part)) is None:
                break  # of a list, or new
            seen, place, value = inside, f"{place}/{json_patch.escape(part)}", _member(value, part)
            if value is not seen.value:
                return place
        return path


def _seen(value: Any) -> _Seen:
    return _Seen(value, {key: _seen(each) for key, each in _members(value) if _is_container(each)})


def _is_container(value: Any) -> bool:
    return type(value) not in _LEAVES and (isinstance(value, _CONTAINERS) or bool(_fields_of(value)))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key if type(key) is str else _as_text(key), each
    elif not isinstance(value, _CONTAINERS):
        for key, name in _fields_of(value).items():
            yield key, getattr(value, name, None)


def _member(value: Any, key: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    return next((each for known, each in _members(value) if known == key), None)


def _as_text(key: Any) -> str:
    text: str = next(iter(msgspec.to_builtins({key: None}, str_keys=True)))
    return text


def _fields_of(value: object) -> dict[str, str]:
    """The attributes of an object by their keys in JSON; none for other values."""
    kind: Any = type(value)
    return _fields(kind)


@cache
def _fields(kind: Any) -> dict[str, str]:
    if issubclass(kind, msgspec.Struct):
        return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    for attribute in ("__pydantic_fields__", "__dataclass_fields__", "__attrs_attrs__"):
        if (found := getattr(kind, attribute, None)) is not None:
            names = [getattr(each, "name", each) for each in found]
            return dict(zip(names, names, strict=True))
    return {}


class Contradiction(Exception):
    """Another commit has changed what this one would change. The scope is entered again; this is no failure of it."""


Make = Callable[..., list[Splice]]
"""Changes a plan. Gets the plan, the ids of the new items if they have some, and the tasks there that it is about."""


class PlanEdit(Struct, frozen=True):
    """A change of the plan by an agent, which can be made again in a later plan."""

    why: str
    make: Make
    about: tuple[Task, ...] = ()
    adds: int = 0  # new items
    ends: bool = False  # the items that it is about
    planned: str = ""  # the hash of a `run.plan`


class _Made(NamedTuple):
    """A change that the scope has made in its copy."""

    edit: PlanEdit
    about: Sequence[Task]  # as they were then, all with ids
    ids: Sequence[str]  # of the new items


class OwnPlan:
    """For one attempt at a scope. `free_id` reserves an id that no plan has and no other item will get."""

    def __init__(self, plan: Plan, free_id: Callable[[Plan], str]):
        self.plan = plan.copy()
        self._base = plan.copy()
        self._free_id = free_id
        self._made: list[_Made] = []
        self._added: set[str] = set()  # ids of new items
        self._named: dict[str, Task] = {}  # items of the base, by the ids that they have got here

    def change(self, edit: PlanEdit) -> bool:
        """Change the copy. Returns whether that has changed anything."""
        about = [self._with_id(task) for task in edit.about]
        ids = [self._free_id(self.plan) for _ in range(edit.adds)]
        if not edit.make(self.plan, ids, *about):
            return False
        self._made.append(_Made(edit, about, ids))
        self._added.update(ids)
        return True

    def _with_id(self, task: Task) -> Task:
        found = self.plan.now(task)
        if found.id is None:
            id = self._free_id(self.plan)
            added = sum(each.id in self._added for each in self.plan.tasks[: found.index])
            self._named[id] = self._base.at(found.index - added)
            self.plan.name(found, id)
            found = self.plan.now(found)
        return found

    def again(self, plan: Plan) -> list[Splice]:
        """Make all changes in `plan`, which others may have changed meanwhile. Contradiction if they do not fit any
        more."""
        lines = plan.lines
        try:
            splices: list[Splice] = []
            known: dict[str, str] = {}  # ids in the plan, by those in the copy
            for task in (task for made in self._made for task in made.about):
                assert task.id is not None
                if task.id in self._named and task.id not in known:
                    known[task.id], naming = self._placed(plan, task.id)
                    splices += naming
            for made in self._made:
                about = [_found(plan, known, task) for task in made.about]
                if made.edit.ends and any(
                    now.is_finished > was.is_finished for now, was in zip(about, made.about, strict=True)
                ):
                    raise Contradiction("an item that it would cancel has ended")
                for id in made.ids:
                    _check_free(plan, id)
                splices += made.edit.make(plan, made.ids, *about)
            return splices
        except SatchelError as error:
            if lines == self._base.lines:
                raise  # no other scope has changed anything, so it would be the same at every attempt
            raise Contradiction(str(error)) from error

    def _placed(self, plan: Plan, id: str) -> tuple[str, list[Splice]]:
        """The id of an item that had none in the base, and the change that gives it one if it still has none."""
        was = self._base.now(self._named[id])
        try:
            found = plan.now(was)
        except UsageError:
            alike = [task for task in plan.tasks if task.text == was.text]
            if len(alike) != 1 or sum(task.text == was.text for task in self._base.tasks) != 1:
                raise
            found = alike[0]
        if found.id is not None:
            return found.id, []
        _check_free(plan, id)
        return id, plan.name(found, id)


def _found(plan: Plan, known: dict[str, str], task: Task) -> Task:
    assert task.id is not None
    found = plan.task(known.get(task.id, task.id))
    if found is None:
        raise UsageError(f"the item {task.text!r} is no longer in todo.md")
    return found


def _check_free(plan: Plan, id: str) -> None:
    """A person may have used it meanwhile."""
    if plan.task(id) is not None:
        raise Contradiction(f"the id ^{id} is used by another item now")


class ScopeCopy:
    """For one attempt. `base` is the data that the copy was made from; it never changes."""

    def __init__(self, live: LiveState, base: Any, path: str):
        self._base = base
        self.live = live.fresh(base, path)
        self._containers = Containers(self.live.value)
        self._own: OwnPlan | None = None  # once the scope has changed it

    def take(self, live: LiveState) -> None:
        """The scope has begun with `live`, and continues with it. If it has changed that before, it is not known which
        containers it has replaced: then all that it has changed counts as replaced."""
        if not live.is_changed:
            self._containers = Containers(live.value)
        self.live = live

    @property
    def plan(self) -> Plan | None:
        """The plan with the changes of the scope, if it has made some."""
        return None if self._own is None else self._own.plan

    def replan(self, plan: Plan, edit: PlanEdit, free_id: Callable[[Plan], str]) -> bool:
        """Make a change in the copy of `plan`. The commit makes the same change again. Returns whether there is one."""
        own = OwnPlan(plan, free_id) if self._own is None else self._own
        if is_change := own.change(edit):
            self._own = own
        return is_change

    def change(self, now: Any) -> CommittedChange:
        """The change of the recorded data, which are `now` in place of the base. Contradiction if it can't follow."""
        change = self.live.change()
        place = contradiction(self._containers.places(self.live.value, change.patch), self._base, now)
        if place is not None:
            raise Contradiction(place)
        if now is not self._base:
            self._check_joined(change, now)
        return change

    def _check_joined(self, change: CommittedChange, now: Any) -> None:
        """Contradiction if the type does not allow both changes together: two more elements of a list that may get
        one."""
        patch: Patch = [
            {**each, "value": msgspec.json.decode(value)} if isinstance(value := each.get("value"), Raw) else each
            for each in change.patch
        ]
        try:
            round_trip.check_loads(self.live.whole, json_patch.apply(now, patch), patch, "run.state")
        except UsageError as error:
            raise Contradiction(str(error)) from error

    def replan_again(self, plan: Plan) -> list[Splice]:
        """Make the changes of the scope in `plan`. From now on the scope has no plan of its own. Contradiction if they
        do not fit any more."""
        own, self._own = self._own, None
        return [] if own is None else own.again(plan)
