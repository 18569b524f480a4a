"""The tools that change a run. Each does what a person could do on the command line."""

from __future__ import annotations

import time

from ...workspace.base import LeaseHeld, SatchelError, UsageError
from ...workspace.people.inbox import firing
from ..control import Handle, is_pausing
from ..supervision.child import Background
from . import describing, shapes
from .asking import Asking

_HELD = 6
_REFUSED = (2, _HELD, 8)
"""Exit codes of a start that has not touched the run. The second: another process has it."""

_PATIENCE = 60.0
_LOOK = 0.05
_REMOTE_LOOK = 1.0


def start(asking: Asking, wanted: shapes.StartArguments) -> shapes.RunStatus:
    handle = asking.runs.find(wanted.run)
    if wanted.input is None and (found := asking.status(handle)).state in ("running", "draining"):
        return found  # so that a client which has lost the first reply can ask again
    begin(handle, input=wanted.input)
    return asking.status(handle)


def resume(asking: Asking, wanted: shapes.OneRun) -> shapes.RunStatus:
    handle = asking.runs.find(wanted.run)
    if not is_pausing(handle) or handle.withdraw().status not in ("withdrawn", "requested"):
        begin(handle, resume=True)
    return asking.status(handle)


def begin(handle: Handle, *, resume: bool = False, input: dict[str, object] | None = None) -> None:
    """Start it in the background, and return when its opening is on record. So a server that is killed afterwards finds
    the run again."""
    before = handle.status(brief=True).moment
    found = handle.detach(resume=resume, input=input)
    until = time.monotonic() + _PATIENCE
    while found.exit_code is None and time.monotonic() < until:
        moment = handle.status(brief=True).moment
        if moment is None and before is not None:
            return  # it broke a file of its own run, or a person did: its status says which
        if moment is not None and not moment.is_new and (before is None or moment.epoch > before.epoch):
            return
        time.sleep(_REMOTE_LOOK if handle.store.abilities.remote else _LOOK)
        handle.store.refresh()
    moment = handle.status(brief=True).moment
    if found.exit_code in _REFUSED or moment is None or moment.is_new:
        raise _refusal(found)


def _refusal(found: Background) -> SatchelError:
    """What the process has said that did not start."""
    said, kind = found.said, LeaseHeld if found.exit_code == _HELD else UsageError
    text = "\n".join(line.strip().removeprefix("satchel: ") for line in said.strip().splitlines())
    return kind(text or "it did not start", remedy=None if text else f"its output is in {found.log}")


def answer(asking: Asking, wanted: shapes.AnswerArguments) -> shapes.Answered:
    handle = asking.runs.find(wanted.run)
    done = handle.answer(
        wanted.decision,
        wanted.question,
        arguments=wanted.arguments,
        standing=wanted.standing,
        result=wanted.result,
        by=asking.by,
        note=wanted.note,
    )
    questions = [*map(describing.question, done.questions)]
    found = asking.status(handle)
    return shapes.Answered(done.id, done.is_recorded, done.was_before, questions, found.next)


def send(asking: Asking, wanted: shapes.SendArguments) -> shapes.SentFiles:
    handle = asking.runs.find(wanted.run)
    if firing.is_one(wanted.content):
        raise UsageError("a time of a schedule can't be sent", remedy="only `satchel serve` makes them; send a task")
    sent = handle.send(wanted.content, message=wanted.message)
    return shapes.SentFiles([shapes.SentFile(each.file, each.kind) for each in sent], asking.status(handle).next)


def pause(asking: Asking, wanted: shapes.PauseArguments) -> shapes.Stopping:
    handle = asking.runs.find(wanted.run)
    found = handle.pause(reason=wanted.reason, until=wanted.until, by=asking.by)
    return shapes.Stopping(asking.runs.name(handle), found.status, found.said)


def cancel(asking: Asking, wanted: shapes.EndArguments) -> shapes.Stopping:
    handle = asking.runs.find(wanted.run)
    found = handle.cancel(reason=wanted.reason, by=asking.by)
    return shapes.Stopping(asking.runs.name(handle), found.status, found.said)


def stop(asking: Asking, wanted: shapes.EndArguments) -> shapes.Killed:
    handle = asking.runs.find(wanted.run)
    found = handle.stop(reason=wanted.reason, by=asking.by)
    return shapes.Killed(asking.runs.name(handle), found.how, found.said)


def fork(asking: Asking, wanted: shapes.ForkArguments) -> shapes.Forked:
    handle = asking.runs.find(wanted.run)
    found = handle.fork(asking.runs.place_of(wanted.to), at=wanted.at, by=asking.by)
    new = asking.runs.find(wanted.to)
    return shapes.Forked(
        asking.runs.name(new),
        found.run_id,
        found.seq,
        found.files,
        [each.call for each in found.effects],
        asking.status(new).next,
    )
