"""The state of a run, its open questions, with the command and the file for each answer, and its outcome: for people
and for programs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from ...workspace.base import SIGNAL, visible
from ...workspace.inbound import APPROVE
from ...workspace.journal import Doubt
from ...workspace.lifecycle import said
from ...workspace.state import DONE
from ..api import EXIT_CODES
from ..present import (
    choice_meaning,
    counted,
    describe_reply,
    done_of,
    duration,
    expiry_line,
    failure_line,
    json_line,
    one_line,
    place_asked,
    run_id_of,
    since,
    size,
    state_colour,
    typed_value,
)
from .output import columns, fold, listed, print_lines, print_remarks

if TYPE_CHECKING:
    from ...workspace.inbound import Question
    from ...workspace.inspect import Remark
    from ..api import Handle, OpenQuestion, RunResult, RunStatus
    from ..execution import Outcome

_CONTEXT = 200  # characters
_CHOICES = 6


def status_json(status: RunStatus) -> dict[str, Any]:
    moment, definition, problem = status.moment, status.definition, status.problem or status.mistake
    progress = status.plan.progress if status.plan else None
    return {
        "url": status.url,
        "run_id": run_id_of(status) or None,
        "agent": definition.agent if definition else None,
        "group": (definition.group or None) if definition else None,
        "priority": definition.priority if definition else 0,
        "code": (moment.code or None) if moment else None,
        "state": status.state,
        "needs_person": status.needs_person,
        "backup": msgspec.to_builtins(status.backup),
        "backup_of": msgspec.to_builtins(status.backup_of),
        "moved": msgspec.to_builtins(status.moved),
        "reason": moment.reason if moment else "",
        "items": progress._asdict() if progress else None,
        "inbox": {"waiting": status.waiting, "taken": len(moment.tasks) if moment else 0},
        "at": status.at or None,
        "pause": msgspec.to_builtins(replace(moment.pause, file="")) if moment and moment.pause else None,
        "waiting_edits": list(status.waiting_edits),
        "being_saved": list(status.being_saved),
        "uncalled": moment.uncalled if moment else [],
        "questions": questions_json(status.questions),
        "holder": msgspec.to_builtins(status.holder) if status.state == "running" else None,
        "heard": status.heard or None,
        "problem": {"kind": type(problem).__name__, "message": str(problem)} if problem else None,
    }


# Its open questions


def question_lines(questions: Iterable[OpenQuestion], place: Handle, width: int) -> Iterator[str]:
    """Each question in a few lines, indented from the second on."""
    for each in questions:
        yield from fold(_asked(each.question, place) + _typed_words(each), width)


def print_questions(questions: Iterable[OpenQuestion], place: Handle) -> None:
    print_lines(question_lines(questions, place, columns(sys.stdout)))


def _typed_words(asked: OpenQuestion) -> str:
    taken = "; the next start reads it" if asked.reply else ""
    said = describe_reply(asked)
    return visible(f"\n    the file says: {said}{taken}") if said else ""


def _asked(question: Question, place: Handle) -> str:
    where = f" ({place_asked(question)})" if place_asked(question) and not question.is_doubt else ""
    lines = [f"{question.id}: {question.text}{where}"]
    if question.may_change:
        lines.append(f"    arguments: {one_line(typed_value(question.arguments), _CONTEXT)}")
    if "context" in question.facts:
        lines.append(f"    context: {one_line(typed_value(question.facts['context']), _CONTEXT)}")
    if question.asked_at:
        lines.append("; ".join(filter(None, (f"    asked {since(question.asked_at)}", expiry_line(question)))))
    answer = shlex.join(["satchel", "answer", place.typed or ".", question.id])
    if question.is_doubt and len(question.choices) <= _CHOICES:
        result = {DONE: " --result RESULT"} if not question.is_unclaimed else {}
        lines += [
            f"    {choice_meaning(question, choice)}: {answer} {choice}{result.get(choice, '')}"
            for choice in question.choices
        ]
    elif 0 < len(question.choices) <= _CHOICES:
        lines += [f"    {answer} {shlex.quote(choice)}" for choice in question.choices]
        lines += [f"    {answer} {APPROVE} --set {_first(question)}=VALUE"] * question.may_change
        if question.tool:
            lines.append(f"    each later call of {question.tool}, too: {answer} {APPROVE} --standing")
    else:
        lines.append(f"    {answer} ANSWER")
    lines.append(f"    or write it into {os.path.join(place.typed, question.path)}")
    return visible("\n".join(lines))


def questions_json(questions: Iterable[OpenQuestion]) -> list[dict[str, Any]]:
    found = []
    for each in questions:
        question = each.question
        told: dict[str, Any] = {
            "id": question.id,
            "kind": "doubt" if question.is_doubt else "approval",
            "question": question.text,
            "choices": list(question.choices) or None,
            "answer_schema": question.schema,
            "arguments": question.arguments,
            "tool": question.tool or None,
            "named": each.named or None,
            "context": question.facts.get("context"),
            "agent": question.agent,
            "item": question.item,
            "scope": question.asked.scope,
            "asked_at": question.asked_at or None,
            "expires": question.expires or None,
            "default": question.facts.get("default"),
            "file": question.path,
        }
        if isinstance(question.asked, Doubt):
            doubt = question.asked
            told |= {"step": doubt.step, "call": doubt.call, "why": doubt.why, "cause": doubt.cause}
        if each.command:
            told |= {"command": each.command, "typed": describe_reply(each) or None}
        found.append(told)
    return found


def _first(question: Question) -> str:
    """The name of its first argument, for a command line."""
    return shlex.quote(next(iter(question.arguments or {}), "NAME"))


# Its outcome

_RESULT_SHOWN = 2000  # characters


def ended_json(ended: RunResult) -> dict[str, Any]:
    return {
        "status": ended.status,
        "exit_code": EXIT_CODES[ended.status],
        "run_id": ended.run_id,
        "url": ended.url,
        "items": ended.items._asdict(),
        "result": _plain_result(ended),
        "failure": msgspec.to_builtins(ended.failure),
        "questions": questions_json(ended.questions),
        "answered": ended.answered,
        "skipped": ended.skipped,
        "recovered": ended.recovered,
        "steps": ended.steps,
        "seconds": round(ended.seconds, 3),
        "open_items": ended.open_items,
        "until": ended.until or None,
        "outputs": sorted(ended.outputs),
        "noticed": ended.noticed,
        "report": report_json(ended.report.remarks),
    }


def print_ended(ended: RunResult, place: Handle, *, for_programs: bool, quiet: bool, with_traceback: bool) -> None:
    """The last lines of a run. The outcome goes to stdout, unless programs get JSON there; the rest goes to stderr."""
    if ended.status == "waiting" and not ended.entered:
        print_remarks(ended.report.remarks, err=True)
    for text in ended.noticed if quiet else ():  # else they were shown when they came
        _aside(f"{click.style('noticed', fg='yellow')}  {one_line(text)}")
    print_remarks(ended.report.late if not quiet else (), err=True)
    if ended.status == "failed":
        _tell_failure(ended, with_traceback)
    if not for_programs:
        _tell_result(ended, place)
    if ended.status == "completed" and ended.open_items:
        still = counted(ended.open_items, "item")
        _aside(f"{click.style('warning:', fg='yellow')} the agent has returned, but todo.md still has {still} to do")
    print_questions(ended.questions if not for_programs else (), place)
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
        click.echo(f"  result: {json_line(_plain_result(ended), _RESULT_SHOWN)}")


def report_json(found: Iterable[Remark]) -> list[dict[str, str]]:
    """The report of an opening."""
    return [{"kind": remark.kind, "text": remark.text} for remark in found]


def _plain_result(ended: RunResult) -> Any:
    from ..steps import encode  # slow, and most commands show no result of a run

    return msgspec.json.decode(encode(ended.result, "the result"))


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
