"""The state and the outcome of a run, for people and for programs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from ....workspace.base import SIGNAL, visible
from ....workspace.lifecycle import said
from ...api import EXIT_CODES, RunStatus
from ...present import (
    counted,
    done_of,
    duration,
    failure_line,
    json_line,
    one_line,
    run_id_of,
    since,
    size,
    state_colour,
)
from ...steps import encode
from . import asked
from .output import columns, fold, listed, remarks

if TYPE_CHECKING:
    from ...api import Handle, RunResult
    from ...execution import Outcome

_RESULT_SHOWN = 2000  # characters


def as_json(ended: RunResult) -> dict[str, Any]:
    return {
        "status": ended.status,
        "exit_code": EXIT_CODES[ended.status],
        "run_id": ended.run_id,
        "url": ended.url,
        "items": ended.items._asdict(),
        "result": msgspec.json.decode(encode(ended.result, "the result")),
        "failure": msgspec.to_builtins(ended.failure),
        "questions": asked.as_json(ended.questions),
        "answered": ended.answered,
        "skipped": ended.skipped,
        "recovered": ended.recovered,
        "steps": ended.steps,
        "seconds": round(ended.seconds, 3),
        "open_items": ended.open_items,
        "until": ended.until or None,
        "outputs": sorted(ended.outputs),
        "noticed": ended.noticed,
        "report": [{"kind": remark.kind, "text": remark.text} for remark in ended.report.remarks],
    }


def as_words(ended: RunResult, place: Handle, *, for_programs: bool, quiet: bool, with_traceback: bool) -> None:
    """The last lines of a run. The outcome goes to stdout, unless programs get JSON there; the rest goes to stderr."""
    if ended.status == "waiting" and not ended.entered:
        for line in remarks(ended.report.remarks, columns(sys.stderr)):
            _aside(line)
    for edit in ended.noticed if quiet else ():  # else they were shown when they came
        _aside(f"{click.style('edited', fg='yellow')}  {one_line(edit)}")
    for line in remarks(ended.report.late, columns(sys.stderr)) if not quiet else ():
        _aside(line)
    if ended.status == "failed":
        _tell_failure(ended, with_traceback)
    if not for_programs:
        _tell_result(ended, place)
    if ended.status == "completed" and ended.open_items:
        still = counted(ended.open_items, "item")
        _aside(f"{click.style('warning:', fg='yellow')} the agent has returned, but todo.md still has {still} to do")
    for question in asked.as_words(ended.questions, place) if not for_programs else ():
        click.echo("\n".join(fold(question, columns(sys.stdout))))
    if ended.status in ("paused", "failed") and not quiet:
        _aside(f"next: {place.status().next or place.command('resume')}")
    if ended.status == "sleeping" and not quiet:
        _aside(f"next: {place.command('run')} when it is time, {place.command('resume')} to continue at once")


def _tell_result(ended: RunResult, place: Handle) -> None:
    if not ended.entered and ended.status == "completed":
        left = f"; the agent did not take {counted(ended.waiting, 'file')} in the inbox" if ended.waiting else ""
        click.echo(f"{_status('completed')}: {ended.run_id} is already completed; there is nothing to do{left}")
        _tell_value(ended)
        return
    did = []
    if ended.items.leaves:
        did.append(done_of(*ended.items, "item"))
    if ended.entered:
        did.append(f"{counted(ended.steps, 'step')} in {duration(ended.seconds)}")
    line = f"{ended.status}{_why(ended)}{': ' if did else ''}{', '.join(did)}"
    if ended.entered and (spared := not_repeated(ended)):
        line += f"; {spared}"
    folded = "\n".join(fold(line, columns(sys.stdout)))
    click.echo(folded.replace(ended.status, _status(ended.status), 1))
    if ended.status == "completed":
        for path, output in sorted(ended.outputs.items()):
            click.echo(f"  {visible(os.path.join(place.typed, path))} ({size(output.bytes)})")
        _tell_value(ended)


def _tell_value(ended: RunResult) -> None:
    if ended.result is not None:
        click.echo(f"  result: {json_line(msgspec.json.decode(encode(ended.result, 'the result')), _RESULT_SHOWN)}")


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


def _why(ended: RunResult) -> str:
    match ended.status:
        case "paused" if ended.pause is not None and ended.reason != SIGNAL:
            return f" ({one_line(said(ended.pause), 200)})"
        case "paused":
            return " by a signal" if ended.reason == SIGNAL else _in_brackets(ended.reason)
        case "waiting":
            return f" for a person ({counted(len(ended.questions), 'question')})"
        case "sleeping":
            return f" until {since(ended.until)}{_in_brackets(ended.reason)}"
        case _:
            return ""


def _in_brackets(reason: str) -> str:
    """Nothing for a run that another process has paused or woken meanwhile, so that its reason is gone."""
    return f" ({one_line(reason, 200)})" if reason else ""


def _tell_failure(ended: RunResult, with_traceback: bool) -> None:
    if with_traceback and ended.error is not None:
        import traceback

        traceback.print_exception(ended.error)
    if ended.failure is None:
        return
    _aside(f"{click.style('satchel:', fg='red', bold=True)} the agent failed: {failure_line(ended.failure)}")
    for line in ended.failure.where:
        _aside(f"  {visible(line)}")
    if not with_traceback:
        _aside("  (--traceback shows the full traceback)")


def _status(status: str) -> str:
    return click.style(status, fg=state_colour(status), bold=True)


def _aside(line: str) -> None:
    click.echo(line, err=True)


def status_as_json(status: RunStatus) -> dict[str, Any]:
    moment, definition, problem = status.moment, status.definition, status.problem or status.mistake
    progress = status.plan.progress if status.plan else None
    return {
        "url": status.url,
        "run_id": run_id_of(status) or None,
        "agent": definition.agent if definition else None,
        "code": (moment.code or None) if moment else None,
        "state": status.state,
        "needs_person": status.needs_person,
        "moved": msgspec.to_builtins(status.moved),
        "reason": moment.reason if moment else "",
        "items": progress._asdict() if progress else None,
        "inbox": {"waiting": status.waiting, "taken": len(moment.tasks) if moment else 0},
        "at": status.at or None,
        "pause": msgspec.to_builtins(replace(moment.pause, file="")) if moment and moment.pause else None,
        "waiting_edits": list(status.waiting_edits),
        "being_saved": list(status.being_saved),
        "uncalled": moment.uncalled if moment else [],
        "questions": asked.as_json(status.questions),
        "holder": msgspec.to_builtins(status.holder) if status.state == "running" else None,
        "heard": status.heard or None,
        "problem": {"kind": type(problem).__name__, "message": str(problem)} if problem else None,
    }
