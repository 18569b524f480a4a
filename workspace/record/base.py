"""What every record is, and what the records of several kinds say alike."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct

Count = Annotated[int, Meta(ge=0)]

NOTHING = Raw(b"")
"""A result that is not in the record itself."""

Patch = list[dict[str, object]]
"""A JSON Patch (RFC 6902) with the operations add, remove and replace."""

Key = tuple[str, str, int]
"""What tells a call from the others of its scope: step name, hash of the arguments, equal calls before it."""


class Record(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type", gc=False):
    """What happened, and to which agent of the tree: `agent` is its path, `researcher/reader`, empty for the root.

    Where there is one, `scope` is an item's id, `_NAME` for a named scope, or empty for the agent itself.
    """

    agent: str = ""


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception, as text."""

    kind: str
    message: str
    where: tuple[str, ...] = ()  # the lines of the agent's own code it came through, outermost first


class OfCall(Record, frozen=True, kw_only=True):
    """A record about one call. `no` is its number in the scope, `call` a preview of its arguments for people."""

    scope: str
    no: int
    step: str
    args: str  # blake2b-64 of the canonical JSON of the arguments, in hex
    n: int
    call: str = ""
    prompts: dict[str, str] = {}  # the files of prompts/ that went into it, each with the start of its SHA-256

    @property
    def key(self) -> Key:
        return self.step, self.args, self.n
