"""The base of all records, and fields that several kinds share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

Count = Annotated[int, Meta(ge=0)]

NOTHING = Raw(b"")
"""A result that is not in the record itself."""

Patch = list[dict[str, object]]
"""A JSON Patch (RFC 6902) with the operations add, remove and replace."""

Key = tuple[str, str, int]
"""Identifies a call in its scope: step name, hash of the arguments, number of equal calls before it."""


def check_time(text: str) -> None:
    """ValueError if this is no time with a zone, or has no day in UTC."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not UTC:
            at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a time") from None
    if at.tzinfo is None:
        raise ValueError(f"the time {text[:40]!r} has no zone")


def check_json(raw: Raw) -> None:
    """ValueError if these bytes look like JSON but can't be read: numbers out of range, or text that is not UTF-8."""
    if len(raw):
        try:
            msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error


class Record(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type", gc=False):
    """What happened, and to which agent of the tree: `agent` is its path, `researcher/reader`, empty for the root.

    `scope`, if there is one, is an item's id, `_NAME` for a named scope, or empty for the agent itself.
    """

    agent: str = ""


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception as text. If it must be raised again, also its parts."""

    kind: str
    message: str
    where: tuple[str, ...] = ()  # the lines of the agent's own code that it came through, outermost first
    types: tuple[str, ...] = ()  # its class and those above it, as `module:name`
    args: Raw = NOTHING  # JSON array; absent if JSON can't hold them
    attributes: Raw = NOTHING  # JSON object of the attributes that JSON can hold
    members: Raw = NOTHING  # JSON array of the failures in a group


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


class SavedFile(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A version of a file in files/: its `text`, or the blob with its bytes, if they are long or no text."""

    sha256: str
    bytes: Count
    text: str = ""
    blob: str = ""
