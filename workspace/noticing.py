"""Compares the readable files with the moment: which lag behind, which are missing, which a person has changed.

Changes nothing. What can't be honoured comes back as errors, for the opening to refuse and for `satchel check` to show.
"""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from . import patch, projection, stamp
from .errors import Edited, InvalidFile, SatchelError
from .moment import Moment
from .record import OfCall
from .stamp import Stamped
from .store import Store, Version
from .textfile import decode
from .todo import Plan


@dataclass(slots=True)
class Noticed:
    """What `notice` has found."""

    versions: dict[str, Version] = field(default_factory=dict)  # of every file that was looked at
    shown: dict[str, OfCall] = field(default_factory=dict)  # step files that are as they should be
    leftovers: list[str] = field(default_factory=list)  # step files of scopes that are no longer open
    findings: list[str] = field(default_factory=list)
    refusals: list[SatchelError] = field(default_factory=list)
    plan: str | None = None  # a plan that a person wrote where there was none


def notice(store: Store, moment: Moment) -> Noticed:
    noticed = Noticed()
    for look in (_state, _todo, _steps):
        try:
            look(store, moment, noticed)
        except (Edited, InvalidFile) as error:
            noticed.refusals.append(error)
    return noticed


def _read(store: Store, path: str, noticed: Noticed) -> bytes | None:
    try:
        data, noticed.versions[path] = store.read(path)
    except FileNotFoundError:
        return None
    return data


def _state(store: Store, moment: Moment, noticed: Noticed) -> None:
    path = projection.STATE
    data = _read(store, path, noticed)
    if data is None:
        if moment.seq:
            noticed.findings.append(f"{path} was missing; it is restored")
        return
    stamped = stamp.read_json(data)
    if moment.seq == 0:
        raise _no_journal(path, stamped)
    if _is_of_this_run(data, moment) and _settled(path, stamped, moment, noticed):
        return
    at = (stamped.stamp.seq, stamped.stamp.epoch) if stamped.stamp else None
    place = _first_difference(projection.state_file(moment, at), data, path)
    if place is None:
        noticed.findings.append(f"{path} was reformatted but says the same; it is written anew")
        return
    raise _edited(path, place)


def _todo(store: Store, moment: Moment, noticed: Noticed) -> None:
    path = projection.TODO
    data = _read(store, path, noticed)
    if data is None:
        if moment.has_plan:
            noticed.findings.append(f"{path} was missing; it is restored")
        return
    stamped = stamp.read_markdown(data)
    text = ("\ufeff" if stamped.body.startswith(codecs.BOM_UTF8) else "") + decode(stamped.body, path)
    if not moment.has_plan:
        if stamped.stamp is not None:
            raise _no_journal(path, stamped)
        if problems := Plan(text).problems():
            raise InvalidFile(path, problems)
        noticed.plan = text
        return
    if _settled(path, stamped, moment, noticed):
        return
    if stamped.stamp is None and hashlib.sha256(text.encode()).hexdigest() == moment.adopted:
        noticed.findings.append(f"{path} was still as it was before the run began; it is brought to {moment.seq}")
        return
    if text.rstrip() == moment.plan.text.rstrip():
        noticed.findings.append(f"{path} had lost its stamp but says the same; it is written anew")
        return
    raise _edited(path, f"line {_first_different_line(moment.plan.text, text)}")


def _steps(store: Store, moment: Moment, noticed: Noticed) -> None:
    expected = {file.path: file.record for file in projection.step_files(moment)}
    for folder in store.folders(projection.STEPS):
        for entry in store.list(folder):
            if not projection.is_step_file(entry.path):
                continue  # a desktop's or an editor's
            data = _read(store, entry.path, noticed)
            if data is None:
                continue
            stamped = stamp.read_json(data)
            record = expected.get(entry.path)
            if not stamped.untouched or stamped.stamp is None or not _is_of_this_run(data, moment):
                place = _first_difference(projection.step_file(moment, record), data, entry.path) if record else "it"
                if place is not None:
                    noticed.refusals.append(_edited(entry.path, place))
            elif stamped.stamp.seq > moment.seq:
                noticed.refusals.append(_ahead(entry.path, stamped.stamp.seq, moment))
            elif record is None:
                noticed.leftovers.append(entry.path)
            elif projection.step_file(moment, record, stamped.stamp[:2]) == data:
                noticed.shown[entry.path] = record


def _settled(path: str, stamped: Stamped, moment: Moment, noticed: Noticed) -> bool:
    """Whether the stamp alone says what to do: the file is as the runtime wrote it, and not from the future."""
    if stamped.stamp is None or not stamped.untouched:
        return False
    if stamped.stamp.seq > moment.seq or stamped.stamp.epoch > moment.epoch:
        raise _ahead(path, stamped.stamp.seq, moment)
    if stamped.stamp.seq < moment.seq:
        noticed.findings.append(f"{path} stood at record {stamped.stamp.seq}; it is brought to {moment.seq}")
    return True


def _is_of_this_run(data: bytes, moment: Moment) -> bool:
    """A file of another run may be untouched too, and would be lost if it were taken for one that lags."""
    try:
        return msgspec.json.decode(data, type=_OfRun).run_id == moment.run_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


class _OfRun(msgspec.Struct):
    run_id: str


def _first_difference(ours: bytes, theirs: bytes, path: str) -> str | None:
    """Where two JSON files differ in what they say, or None. The stamp does not count."""
    try:
        found: Any = msgspec.json.decode(theirs)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not JSON any more ({error})"
    expected = msgspec.json.decode(ours)
    if not isinstance(found, dict):
        return "it is not an object any more"
    for value in (found, expected):
        value.pop("at", None)
    changes = patch.diff(expected, found)
    return str(changes[0]["path"])[1:].replace("/", ".") if changes else None


def _first_different_line(ours: str, theirs: str) -> int:
    pairs = zip(ours.splitlines(), theirs.splitlines(), strict=False)
    same = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
    return min(len(ours.splitlines()), len(theirs.splitlines())) + 1 if same is None else same + 1


def _edited(path: str, place: str) -> Edited:
    return Edited(
        f"was edited by hand ({place})", path=path,
        why="this version of Satchel can't merge edits yet, and does not overwrite what a person wrote",
        remedy=f"to go on without the edit, move the file away (`mv {path} {path}.mine`): it is restored",
    )  # fmt: skip


def _ahead(path: str, seq: int, moment: Moment) -> Edited:
    return Edited(
        f"belongs to a later moment (record {seq}) than the journal (record {moment.seq})", path=path,
        why="the folder was copied while the run was going, or the journal was replaced by an older one",
        remedy="copy the whole folder anew, or move this file away to go on from where the journal stands",
    )  # fmt: skip


def _no_journal(path: str, stamped: Stamped) -> Edited:
    if stamped.stamp is None:
        return Edited(
            "is there before the first run", path=path,
            why="the state begins as the agent's state type says",
            remedy="move it away, and give the agent its input through settings or a step",
        )  # fmt: skip
    return Edited(
        f"belongs to a run whose journal is not here (it stands at record {stamped.stamp.seq})", path=path,
        remedy="copy the folders journal/ and checkpoints/ back, or move this file away to begin anew",
    )  # fmt: skip
