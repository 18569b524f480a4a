"""Streamed output (partials/), and streamed output that a crash cut off (recovered/).

Both are Markdown with a front matter of `key: JSON` lines, which is also YAML. A partial is renamed into place without
a sync, so that it can follow nearly every token. Its length and checksum show after a power failure which part is
whole.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, fields

from ..base import NewerFormat
from ..journal import Key, PartialPromoted
from .projection import file_stem, folder_of

PARTIALS = "partials"
RECOVERED = "recovered"
FORMAT = 1
_FENCE = "---\n"
_MARKED = re.compile(r"\n\n\[recovered: [^\n]*\]\s*\Z")
"""The end of a recovered file. What is before it is the text, as people have left it."""

_NUMBERS = 10**9
_Head = TypeVar("_Head", "PartialHead", "RecoveredHead")


class PartialHead(Struct, frozen=True, kw_only=True):
    """Which call is streaming, in which attempt, and how much of the text is in the file."""

    run_id: str
    agent: str = ""
    scope: str
    no: int
    step: str
    args: str
    n: int
    attempt: int
    at: str
    characters: int = 0
    crc: str = "00000000"
    call: str = ""
    format: int = FORMAT

    @property
    def key(self) -> Key:
        return self.step, self.args, self.n


class RecoveredHead(Struct, frozen=True, kw_only=True):
    """Which call was streaming, in which attempt, and the known facts about the cut."""

    kind: str = "recovered"
    run_id: str
    agent: str = ""
    scope: str
    no: int
    step: str
    args: str
    n: int
    attempt: int
    characters: int
    crc: str
    damaged: bool
    cut_off_at: str
    cut_off_by: str
    format: int = FORMAT


class RecoveryMarker(Struct, frozen=True):
    """Says that a text was recovered and is not finished. Use `str()` of it in a prompt."""

    step: str
    attempt: int  # the attempt that was cut off; 1 is the first
    characters: int  # of the recovered text
    cut_off_at: str  # UTC; when the last of it was written
    cut_off_by: str  # "crash", or the error that ended the stream
    damaged: bool  # a power failure may have taken more than the end
    kind: str = "recovered"

    def __str__(self) -> str:
        if not self.characters:
            return (
                f"[recovered: attempt {self.attempt} was cut off by {self.cut_off_by} at {self.cut_off_at} "
                "before any of the answer was kept; start again]"
            )
        damage = " and its end may be missing" if self.damaged else ""
        return (
            f"[recovered: the answer of attempt {self.attempt} was cut off after {self.characters} characters by "
            f"{self.cut_off_by} at {self.cut_off_at}{damage}; it is not finished]"
        )


def encode_partial(head: PartialHead, text: str) -> bytes:
    """The file of a stream with the text so far; `characters` and `crc` are filled in."""
    body = text.encode()
    return _front(asdict(head) | {"characters": len(text), "crc": _crc(body)}) + body


class PartialContent(NamedTuple):
    """What a partial has. `edited`: it is whole, but other than it was written."""

    head: PartialHead
    text: str
    damaged: bool
    edited: bool = False


def parse_partial(data: bytes) -> PartialContent | None:
    """None if not even the head is whole. A power failure leaves a hole or takes the end, so a text that is as long as
    it was written, or longer, is what a person has made of it. A shorter one may be either."""
    found = _split(data, PartialHead)
    if found is None:
        return None
    head, body = found
    with suppress(UnicodeDecodeError):
        text = body.decode()
        if head.crc in (_crc(body), _crc(body.removesuffix(b"\n"))):  # editors add a last line end
            return PartialContent(head, text[: head.characters], False)
        if "\0" not in text and len(text) >= head.characters:
            return PartialContent(head, text, False, edited=True)
    whole_pages = body.split(b"\0", 1)[0]
    return PartialContent(head, whole_pages.decode(errors="ignore")[: head.characters], True)


def encode_recovered(head: RecoveredHead, text: str) -> bytes:
    marker = marker_of(head)
    return _front(asdict(head)) + text.encode() + f"\n\n{marker}\n".encode()


def parse_recovered(data: bytes) -> tuple[RecoveredHead, str] | None:
    found = _split(data, RecoveredHead)
    if found is None:
        return None
    head, body = found
    text = body.decode(errors="ignore")
    end = _MARKED.search(text)
    return head, text[: end.start()] if end is not None else text[: head.characters]


def marker_of(head: RecoveredHead | PartialPromoted) -> RecoveryMarker:
    return RecoveryMarker(head.step, head.attempt, head.characters, head.cut_off_at, head.cut_off_by, head.damaged)


def promotion(
    head: PartialHead, text: str, damaged: bool, by: str, path: str, *, edited: bool = False
) -> tuple[bytes, PartialPromoted]:
    """The result of promoting a partial: the recovered file at `path`, and the record that points to it."""
    recovered = RecoveredHead(
        run_id=head.run_id,
        agent=head.agent,
        scope=head.scope,
        no=head.no,
        step=head.step,
        args=head.args,
        n=head.n,
        attempt=head.attempt,
        characters=len(text),
        crc=_crc(text.encode()),
        damaged=damaged,
        cut_off_at=head.at,
        cut_off_by=by,
    )
    record = PartialPromoted(
        agent=head.agent,
        scope=head.scope,
        no=head.no,
        step=head.step,
        args=head.args,
        n=head.n,
        call=head.call,
        attempt=head.attempt,
        file=path,
        characters=len(text),
        damaged=damaged,
        edited=edited,
        cut_off_at=head.at,
        cut_off_by=by,
    )
    return encode_recovered(recovered, text), record


def partial_path(folder: str, scope: str, title: str, no: int, step: str) -> str:
    """`folder` is the agent's."""
    return f"{folder}{PARTIALS}/{folder_of(scope, title)}/{file_stem(no, step)}.md"


def recovered_path(folder: str, scope: str, title: str, no: int, step: str, attempt: int) -> str:
    return f"{folder}{RECOVERED}/{folder_of(scope, title)}/{file_stem(no, step)}-{attempt}.md"


def _front(facts: dict[str, Any]) -> bytes:
    lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in facts.items())
    return f"{_FENCE}{''.join(lines)}{_FENCE}".encode()


def _split(data: bytes, kind: type[_Head]) -> tuple[_Head, bytes] | None:
    """The front matter as a `kind`, and the bytes after it. Ignores unknown keys."""
    fence = _FENCE.encode()
    if not data.startswith(fence) or (end := data.find(b"\n" + fence)) < 0:
        return None
    try:
        rows = [row.partition(": ") for row in data[len(fence) : end].decode().split("\n")]
        facts = {name: json.loads(value) for name, _, value in rows}
        if facts["format"] > FORMAT:
            raise NewerFormat(f"a partial of format {facts['format']}", remedy="upgrade Satchel; nothing was changed")
        wanted = {field.name: field.type for field in fields(kind)}
        known = {name: value for name, value in facts.items() if name in wanted}
        if any(type(value) is not wanted[name] for name, value in known.items()):
            return None
        if any(not 0 <= value < _NUMBERS for value in known.values() if type(value) is int):
            return None
        json.dumps(known, ensure_ascii=False).encode()  # an escape may be half a character, which no file can hold
        return kind(**known), data[end + 1 + len(fence) :]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
