"""The state of one running agent: an object of the user's type. It also contains the uncommitted changes of the current
scope."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Raw

from ...schemas import Where
from ...workspace.base import AgentError, NotSerializable, Refused, UsageError
from ...workspace.journal.records import Patch
from ...workspace.state import Known
from ..steps import (
    Codec,
    Part,
    attributes,
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


class Change(NamedTuple):
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
        self._recorded = Known(b"")  # the data on record as JSON, which may lack what the type has a default for
        self._aside: list[tuple[Where, Any]] = []  # there, and unknown to the type
        self._left: list[tuple[Any, _Said]] = []  # objects that were the state before

    def restore(self, data: Any, path: str) -> None:
        """Start again with the recorded `data`, in a new object. `path` is the file that shows them. After a refusal
        there is no object."""
        self._leave()
        self.value = None
        self._recorded = Known(unchecked(data, "the data"))
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

    def take_leave(self, other: LiveState, change: Change) -> None:
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

    def change(self) -> Change:
        """The change that a commit makes to the recorded data. UsageError or NotSerializable, with the place, if what
        has changed could not be loaded or would come back as something else."""
        self._check_left()
        attributes.check(self.value, self.codec.kind, _STATE)
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
        return Change(patch, state, has_null)

    def committed(self, change: Change) -> None:
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
    changes = Known(was).change_to(now)
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
