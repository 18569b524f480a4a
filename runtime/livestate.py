"""The state of one agent at work: an object of the user's own type, ahead of the record by what the scope at work has
changed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ..workspace import patch
from ..workspace.errors import AgentError, NotSerializable, Refused, UsageError
from ..workspace.record import Patch
from .codec import Codec, check_depth, encode_of_any_depth

_REMEMBERED = 4


class Change(NamedTuple):
    """What a commit does to the recorded data, and the state as JSON that it makes of them."""

    patch: Patch
    state: bytes


class LiveState:
    def __init__(self, codec: Codec):
        self.codec = codec
        self.value: Any = None
        self._committed = b""  # the state of the last commit, as JSON
        self._left: list[tuple[Any, bytes]] = []  # objects that were the state before, and what they said then

    def restore(self, data: Any, path: str) -> None:
        """Begin again with the recorded `data`, in a new object. `path` is the file that shows them."""
        self._leave()
        try:
            self.value = self.codec.decode(encode_of_any_depth(data, "the state"))
        except UsageError as error:
            raise Refused(
                "the data of this run do not fit the agent's state type", path=path, why=error.why,
                remedy="give the agent a `@migration` for the data, or correct `data` in the file",
            ) from error  # fmt: skip
        self._committed = encode_of_any_depth(self.value, "the state")

    def _leave(self) -> None:
        """The object is not the state any more. Whoever still holds it, or a part of it, would change what nobody
        keeps, so what it says is remembered: of the first one, and of the last few."""
        if self.value is None:
            return
        with suppress(UsageError, NotSerializable):  # what could not be kept can't be compared
            self._left.append((self.value, encode_of_any_depth(self.value, "the state")))
            del self._left[1 : 1 - _REMEMBERED]

    def _check_left(self) -> None:
        """AgentError if one of them was changed."""
        for value, said in self._left:
            now = encode_of_any_depth(value, "run.state")
            if now != said:
                raise AgentError(
                    f"run.state{_changed(said, now)} was changed in an object that is not the state any more",
                    why="after a failure or a person's edit run.state is another object, so this change would be lost",
                    remedy="read run.state where you change it, and keep neither it nor a part of it in a variable "
                    "from one item to the next",
                )

    def change_from(self, data: Any) -> Change:
        """What a commit makes of the recorded `data`."""
        self._check_left()
        state = as_object(self.value, "run.state")
        is_changed = state != self._committed
        changes = patch.diff(data, msgspec.json.decode(state), ordered=True) if is_changed else []
        for each in changes:
            path = str(each["path"])
            value = msgspec.json.encode(each.get("value"))
            check_depth(value, f"run.state{path.replace('/', '.')}", around=path.count("/"))
        return Change(changes, state)

    def committed(self, change: Change) -> None:
        self._committed = change.state

    def check_unchanged(self, when: str) -> None:
        """AgentError if it was changed since the last commit."""
        self._check_left()
        state = encode_of_any_depth(self.value, "run.state")
        if state == self._committed:
            return
        raise AgentError(
            f"run.state{_changed(self._committed, state)} was changed outside a scope",
            why=f"noticed {when}, and a crash would lose it",
            remedy="change run.state in an item's function, or in one called with run.scope(...)",
        )  # fmt: skip


def _changed(was: bytes, now: bytes) -> str:
    """The first place in which they differ, as the agent's code names it."""
    changes = patch.diff(msgspec.json.decode(was), msgspec.json.decode(now), ordered=True)
    return str(changes[0]["path"]).replace("/", ".") if changes else ""


def as_object(state: Any, what: str) -> bytes:
    """The state as JSON. UsageError if that is anything but an object: neither editors nor migrations take it."""
    data = encode_of_any_depth(state, what)
    if not data.startswith(b"{"):
        raise UsageError(
            f"{what} is no object", why=f"it is a {type(state).__name__}",
            remedy="let it be a pydantic model, a dataclass, a TypedDict or a dict, and put the value into it",
        )  # fmt: skip
    return data
