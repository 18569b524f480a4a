"""The readable files, as views of a moment: state.json, todo.md, steps/. Pure: a moment in, bytes out.

Also their way back: what a file read from the storage says, compared with the moment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import Raw

from . import stamp
from .moment import ROOT, Moment, Scope
from .names import ID, slug
from .record import OfCall, StepCompleted

STATE = "state.json"
TODO = "todo.md"
STEPS = "steps"
STEPS_SHOWN = 50
"""Of each open scope the newest results are shown, so that a scope of 10,000 steps is not a folder of 10,000 files."""

_HASHED = re.compile("-[0-9a-f]{6}$")
_STEP_FILE = re.compile(r"/[0-9]{2,}-[a-z0-9-]+\.json\Z")
_AT = b'"at": {"seq": %d, "epoch": %d, "sha": "00000000"}'


def state_file(moment: Moment, at: tuple[int, int] | None = None) -> bytes:
    return _json(
        moment,
        ".satchel/schemas/state.json",
        {
            "status": moment.status,
            **({"reason": moment.reason} if moment.reason else {}),
            "attempt": moment.attempt,
            "open": [folder_of(key, scope.title) for key, scope in moment.scopes.items() if key != ROOT],
            "waiting_for": list(moment.doubts),
            "usage": moment.usage,
            "data": moment.data,
        },
        at,
    )


def todo_file(moment: Moment) -> bytes:
    return stamp.sign_markdown(moment.plan.text.encode(), moment.seq, moment.epoch)


class StepFile(NamedTuple):
    path: str
    scope: str
    record: OfCall  # a StepCompleted, or the StepStarted of an effect in doubt


def step_files(moment: Moment) -> Iterator[StepFile]:
    for key, scope in moment.scopes.items():
        yield from step_files_of(key, scope)


def step_files_of(key: str, scope: Scope) -> Iterator[StepFile]:
    """The newest steps of a scope, newest first; effects in doubt always."""
    folder = f"{STEPS}/{folder_of(key, scope.title)}"
    newest: Iterator[OfCall] = islice(reversed(scope.done.values()), STEPS_SHOWN)
    for record in (*scope.started.values(), *newest):
        yield StepFile(f"{folder}/{file_stem(record.no, record.step)}.json", key, record)


def step_file(moment: Moment, record: OfCall, at: tuple[int, int] | None = None) -> bytes:
    """`at`: seq and epoch to stamp it with, to compare it with a file written at an earlier moment."""
    facts: dict[str, object] = {
        "scope": record.scope,
        "no": record.no,
        "step": record.step,
        "kind": "step",
        "call": record.call,
        "status": "in_doubt",
        "result": None,
    }
    if isinstance(record, StepCompleted):
        facts |= {"kind": "effect" if record.effect else "step", "status": "completed", "ms": record.ms}
        if record.blob:
            facts |= {"result": None, "result_in": f".satchel/blobs/{record.blob}"}
        else:
            facts |= {"result": record.result if len(record.result) else Raw(b"null")}
    else:
        facts |= {"kind": "effect"}
    return _json(moment, "../../.satchel/schemas/step.json", facts, at)


def folder_of(key: str, title: str) -> str:
    """The name of a scope's folders: `3-summarise-report-b` for an item, `_name` for a named scope."""
    if key == ROOT:
        return "_agent"
    words = slug(title)
    if ID.fullmatch(key):
        if "-" in key:  # `3-a` must not look like item `3` called "a"
            return f"{key}.{words or 'item'}"
        return f"{key}-{words}" if words else key
    name = slug(key[1:])
    if key == f"_{name}" and name != "agent" and not _HASHED.search(name):
        return key
    return f"_{name}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def is_step_file(path: str) -> bool:
    """Whether a file in a scope's folder can be one of ours, by its name."""
    return _STEP_FILE.search(path) is not None


def file_stem(no: int, step: str) -> str:
    return f"{no:02d}-{slug(step) or 'step'}"


def _json(moment: Moment, schema: str, facts: dict[str, object], at: tuple[int, int] | None = None) -> bytes:
    """Pretty JSON with the stamp near its top, on one line."""
    head = {"$schema": schema, "format": 1, "run_id": moment.run_id}
    top = msgspec.json.format(msgspec.json.encode(head), indent=2)[:-2]
    rest = msgspec.json.format(msgspec.json.encode(facts), indent=2)[1:]
    return stamp.sign_json(b"%s,\n  %s,%s\n" % (top, _AT % (at or (moment.seq, moment.epoch)), rest))
