"""The state of one agent at work: an object of the user's own type, ahead of the record by what the scope at work has
changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ..workspace import patch
from ..workspace.errors import AgentError, Refused, UsageError
from ..workspace.record import Patch
from .codec import Codec, check_depth, encode_of_any_depth


class Change(NamedTuple):
    """What a commit does to the recorded data, and the state as JSON that it makes of them."""

    patch: Patch
    state: bytes


class LiveState:
    def __init__(self, codec: Codec):
        self.codec = codec
        self.value: Any = None
        self._committed = b""  # the state of the last commit, as JSON

    def restore(self, data: Any, path: str) -> None:
        """Begin again with the recorded `data`, in a new object. `path` is the file that shows them."""
        try:
            self.value = self.codec.decode(encode_of_any_depth(data, "the state"))
        except UsageError as error:
            raise Refused(
                "the data of this run do not fit the agent's state type", path=path, why=error.why,
                remedy="give the agent a `@migration` for the data, or correct `data` in the file",
            ) from error  # fmt: skip
        self._committed = encode_of_any_depth(self.value, "the state")

    def change_from(self, data: Any) -> Change:
        """What a commit makes of the recorded `data`."""
        state = as_object(self.value, "run.state")
        changes = [] if state == self._committed else patch.diff(data, msgspec.json.decode(state))
        for each in changes:
            path = str(each["path"])
            value = msgspec.json.encode(each.get("value"))
            check_depth(value, f"run.state{path.replace('/', '.')}", around=path.count("/"))
        return Change(changes, state)

    def committed(self, change: Change) -> None:
        self._committed = change.state

    def check_unchanged(self, when: str) -> None:
        """AgentError if it was changed since the last commit."""
        state = encode_of_any_depth(self.value, "run.state")
        if state == self._committed:
            return
        changes = patch.diff(msgspec.json.decode(self._committed), msgspec.json.decode(state))
        if not changes:
            return  # only the order of keys
        place = str(changes[0]["path"]).replace("/", ".")
        raise AgentError(
            f"run.state{place} was changed outside a scope", why=f"noticed {when}, and a crash would lose it",
            remedy="change run.state in an item's function, or in one called with run.scope(...)",
        )  # fmt: skip


def as_object(state: Any, what: str) -> bytes:
    """The state as JSON. UsageError if that is anything but an object: neither editors nor migrations take it."""
    data = encode_of_any_depth(state, what)
    if not data.startswith(b"{"):
        raise UsageError(
            f"{what} is no object", why=f"it is a {type(state).__name__}",
            remedy="let it be a pydantic model, a dataclass, a TypedDict or a dict, and put the value into it",
        )  # fmt: skip
    return data
