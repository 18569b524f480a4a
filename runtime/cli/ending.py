"""What came of a run, for people and for programs."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...workspace import inbox
from ...workspace.edits.keeping import not_settled
from ...workspace.moment import Moment
from ...workspace.pausefile import SIGNAL
from ...workspace.pausing import said
from ...workspace.record import Failure
from ..codec import encode
from ..supervision.child import EXIT_CODES
from . import asked
from .output import columns, fold, remarks
from .place import Place
from .words import counted, duration, listed, one_line, since, size, visible

if TYPE_CHECKING:
    from ..running import Outcome  # `status` shows failures, too, and runs nothing

_RESULT_SHOWN = 2000  # characters


@dataclass(frozen=True, slots=True)
class Ending:
    """An outcome, and what it takes to tell of it."""

    place: Place
    outcome: Outcome
    after: Moment
    steps: int  # kept by this process
    seconds: float

    @property
    def code(self) -> int:
        return EXIT_CODES[self.outcome.status]


def as_json(ending: Ending) -> dict[str, Any]:
    outcome, after = ending.outcome, ending.after
    progress = after.root.plan.progress
    return {
        "status": outcome.status,
        "exit_code": ending.code,
        "run_id": after.run_id,
        "workspace": ending.place.store.url,
        "items": {"done": progress.settled, "all": progress.leaves},
        "result": _plain(outcome.result),
        "error": msgspec.to_builtins(_failure(ending)),
        "open_questions": asked.as_json(after, ending.place),
        "not_repeated": {
            "steps": outcome.answered, "items": outcome.skipped, "characters": outcome.recovered
        },
        "steps_kept": ending.steps,
        "seconds": round(ending.seconds, 3),
        "open_items": outcome.open_items,
        "until": outcome.until or None,
        "outputs": sorted(after.outputs),
        "edits_noticed": outcome.noticed,
        "report": [{"kind": remark.kind, "text": remark.text} for remark in outcome.report.remarks],
    }  # fmt: skip


def as_words(ending: Ending, *, for_programs: bool, quiet: bool, with_traceback: bool) -> None:
    """The last lines of a run. What came of it is on stdout, unless programs get JSON there; the rest is on stderr."""
    place, outcome = ending.place, ending.outcome
    if outcome.status == "waiting" and not outcome.entered:
        for line in remarks(outcome.report.remarks, columns(sys.stderr)):
            _aside(line)
    for edit in outcome.noticed if quiet else ():  # else they were told when they came
        _aside(f"{click.style('edited', fg='yellow')}  {one_line(edit)}")
    for line in remarks(outcome.report.late, columns(sys.stderr)) if not quiet else ():
        _aside(line)
    if outcome.status == "failed":
        _tell_failure(ending, with_traceback)
    if not for_programs:
        _tell_result(ending)
    if outcome.status == "completed" and outcome.open_items:
        still = counted(outcome.open_items, "item")
        _aside(f"{click.style('warning:', fg='yellow')} the agent has returned, but todo.md still holds {still} to do")
    for question in asked.as_words(ending.after, place) if not for_programs else ():
        click.echo("\n".join(fold(question, columns(sys.stdout))))
    if outcome.status in ("paused", "failed") and not quiet:
        _aside(f"next: {place.command('merge' if not_settled(place.store, ending.after) else 'resume')}")
    if outcome.status == "sleeping" and not quiet:
        _aside(f"next: {place.command('run')} when it is time, {place.command('resume')} to go on at once")


def _tell_result(ending: Ending) -> None:
    outcome, after = ending.outcome, ending.after
    if not outcome.entered and outcome.status == "completed":
        waiting = len(inbox.waiting(ending.place.store, after))
        passed_over = f"; its agent has left {counted(waiting, 'file')} in the inbox" if waiting else ""
        click.echo(f"{_status('completed')}: {after.run_id} was completed before, nothing is left to do{passed_over}")
        return
    progress = after.root.plan.progress
    did = []
    if progress.leaves:
        did.append(f"{progress.settled} of {counted(progress.leaves, 'item')} done")
    if outcome.entered:
        did.append(f"{counted(ending.steps, 'step')} in {duration(ending.seconds)}")
    line = f"{outcome.status}{_why(ending)}{': ' if did else ''}{', '.join(did)}"
    if outcome.entered and (spared := not_repeated(outcome)):
        line += f"; {spared}"
    folded = "\n".join(fold(line, columns(sys.stdout)))
    click.echo(folded.replace(outcome.status, _status(outcome.status), 1))
    if outcome.status == "completed":
        for path, output in sorted(after.outputs.items()):
            click.echo(f"  {visible(os.path.join(ending.place.typed, path))} ({size(output.bytes)})")
        if outcome.result is not None:
            text = msgspec.json.encode(_plain(outcome.result)).decode()
            click.echo(f"  result: {one_line(text, _RESULT_SHOWN)}")


def not_repeated(outcome: Outcome) -> str:
    """`12 steps and 3 items were not done again, 812 characters of a cut-off answer were continued`; may be empty."""
    kept = [(outcome.answered, "step"), (outcome.skipped, "item")]
    parts = [counted(count, noun) for count, noun in kept if count]
    only_one = sum(count for count, _ in kept) == 1
    said = [f"{listed(parts)} {'was' if only_one else 'were'} not done again"] if parts else []
    if outcome.recovered:
        verb = "was" if outcome.recovered == 1 else "were"
        said.append(f"{counted(outcome.recovered, 'character')} of a cut-off answer {verb} continued")
    return ", ".join(said)


def _why(ending: Ending) -> str:
    match ending.outcome.status:
        case "paused" if ending.after.pause is not None and ending.after.reason != SIGNAL:
            return f" ({one_line(said(ending.after.pause), 200)})"
        case "paused":
            return " by a signal" if ending.after.reason == SIGNAL else f" ({one_line(ending.after.reason, 200)})"
        case "waiting":
            return f" for a person ({counted(len(ending.after.doubts) + len(ending.after.approvals), 'question')})"
        case "sleeping":
            return f" until {since(ending.after.until)} ({one_line(ending.after.reason, 200)})"
        case _:
            return ""


def _tell_failure(ending: Ending, with_traceback: bool) -> None:
    error = ending.outcome.error
    if with_traceback and error is not None:
        traceback.print_exception(error)
    failure = _failure(ending)
    if failure is None:
        return
    _aside(f"{click.style('satchel:', fg='red', bold=True)} the agent failed: {failure_line(failure)}")
    for line in failure.where:
        _aside(f"  {visible(line)}")
    if not with_traceback:
        _aside("  (--traceback shows all of it)")


def failure_line(failure: Failure) -> str:
    return one_line(f"{failure.kind}: {failure.message}" if failure.message else failure.kind, 500)


def _failure(ending: Ending) -> Failure | None:
    return ending.after.error if ending.outcome.status == "failed" else None


def _status(status: str) -> str:
    colours = {"completed": "green", "failed": "red"}
    return click.style(status, fg=colours.get(status, "yellow"), bold=True)


def _plain(value: Any) -> Any:
    """JSON of what the agent returned, or its text: nothing depends on it, so it may be anything."""
    try:
        return msgspec.json.decode(encode(value, "the result"))
    except Exception:
        return repr(value)


def _aside(line: str) -> None:
    click.echo(line, err=True)
