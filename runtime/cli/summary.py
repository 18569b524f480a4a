"""The state of a run, its open questions, with the command and the file for each answer, and its outcome: for people
and for programs. While it is active, a display on stderr: a few moving lines on a terminal, one line for each item
elsewhere."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from ...workspace.base import SIGNAL, visible
from ...workspace.inbound import APPROVE
from ...workspace.inspect import Report
from ...workspace.journal import Doubt
from ...workspace.lifecycle import said
from ...workspace.state import DONE, ENDS_KEPT
from ..api import EXIT_CODES, Forecast, forecast
from ..present import (
    choice_meaning,
    counted,
    cut,
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
    from rich.live import Live
    from rich.text import Text

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


def print_next(place: Handle, state: str = "") -> None:
    """The command to type after one that has changed a run at rest. No command starts what programs hold. `state`: of
    the run, if it is known."""
    verb = {"new": "run", "held": "status"}.get(state or place.status(brief=True).state, "resume")
    _aside(f"next: {place.command(verb)}")


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
    from ..agent import encode  # slow, and most commands show no result of a run

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


class Quiet:
    """Shows nothing. The base of the others."""

    def __init__(self) -> None:
        self.item = ""
        self.number = self.of = 0
        self.step = ""
        self.began = self.item_began = self.step_began = time.monotonic()
        self.characters = 0
        self.opened_at = self.began
        self.ends: list[float] = []  # of the newest items of the run's own agent
        self.to_do = 0

    def opened(self, report: Report) -> None:
        """The run begins, or a finished one has recorded edits."""
        self.opened_at, self.ends = time.monotonic(), []

    def agent_begun(self, agent: str) -> None:
        """A sub-agent begins. Its items and steps are shown with its path before them."""

    def agent_ended(self, agent: str) -> None: ...

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        text = named(agent, text)
        self.item, self.number, self.of = one_line(text), finished + 1, of
        self.item_began = time.monotonic()
        self.step, self.characters = "", 0

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        self.item, self.step, self.characters = "", "", 0
        if not agent:
            self.ends = [*self.ends[1 - ENDS_KEPT :], time.monotonic()]
            self.to_do = of - finished

    @property
    def forecast(self) -> Forecast | None:
        """From the items of this opening, so that no pause counts."""
        return forecast(self.opened_at, self.ends, self.to_do, time.monotonic())

    def step_begun(self, agent: str, name: str) -> None:
        self.step, self.characters, self.step_began = one_line(named(agent, name), 40), 0, time.monotonic()

    def streamed(self, agent: str, name: str, characters: int) -> None:
        self.step, self.characters = one_line(named(agent, name), 40), characters

    def noticed(self, kind: str, text: str) -> None:
        """Something that a person should know now: that it is stopping, what was edited."""

    def close(self) -> None:
        """The run has stopped."""

    def _ended(self, text: str, finished: int, of: int, width: int = 0) -> str:
        took = f"  ({duration(time.monotonic() - self.item_began)})"
        line = f"{_number(finished, of)}  {one_line(text)}"
        return (cut(line, max(20, width - len(took))) if width else line) + took


class PlainLines(Quiet):
    """One line when an item begins and one when it ends: for logs, pipes and dumb terminals."""

    def opened(self, report: Report) -> None:
        super().opened(report)
        print_remarks(report.remarks, err=True)

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        super().item_begun(agent, text, finished, of)
        click.echo(f"begin  {_number(self.number, self.of)}  {self.item}", err=True)

    def noticed(self, kind: str, text: str) -> None:
        click.echo(f"{kind}  {one_line(text, 300)}", err=True)

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        line = self._ended(named(agent, text), finished, of)
        super().item_ended(agent, text, finished, of)
        ahead = None if agent else self.forecast
        click.echo(f"end    {line}{f'  {ahead.words}' if ahead else ''}", err=True)


class Moving(PlainLines):
    """Two lines that are drawn again a few times a second. Finished items scroll away above."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Live | None = None

    def opened(self, report: Report) -> None:
        super().opened(report)
        from rich.console import Console
        from rich.live import Live

        # The agent's prints appear above the moving lines; output to a file or a pipe does not.
        self._live = Live(
            console=Console(stderr=True),
            get_renderable=self._draw,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._live.start()
        self._live.console.show_cursor(True)  # a kill must not leave the terminal without a cursor

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        Quiet.item_begun(self, agent, text, finished, of)

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        from rich.text import Text

        if self._live:
            console = self._live.console
            console.print(
                Text.assemble(("[x] ", "green"), self._ended(named(agent, text), finished, of, console.width - 4))
            )
        Quiet.item_ended(self, agent, text, finished, of)

    def noticed(self, kind: str, text: str) -> None:
        if not self._live:
            super().noticed(kind, text)
            return
        from rich.text import Text

        self._live.console.print(Text.assemble((f"{kind}  ", "yellow"), one_line(text, 300)))

    def close(self) -> None:
        if self._live:
            self._live.stop()

    def _draw(self) -> Text:
        """Called by the display's own thread: reads plain values only."""
        from rich.text import Text

        now = time.monotonic()
        item, step = self.item, self.step
        first, second = Text(), Text()
        if item:
            first.append("[/] ", "yellow").append(f"{_number(self.number, self.of)}  {item}")
        else:
            first.append("[/] ", "yellow").append("the agent is running")
        if step:
            characters = f"  {counted(self.characters, 'character')}" if self.characters else ""
            second.append(f"    {step}{characters}  {duration(now - self.step_began)}", "cyan")
        else:
            second.append("    ")
        ahead = self.forecast
        clock = f"  {duration(now - self.began)}{f', {ahead.time_left}' if ahead else ''}"
        width = self._live.console.width - len(clock) - 1 if self._live else 60
        first.truncate(max(10, width), overflow="ellipsis")
        first.append(clock, "dim")
        second.truncate(max(10, width + len(clock)), overflow="ellipsis")
        return Text("\n").join([first, second])


@contextmanager
def watching(*, quiet: bool) -> Iterator[Quiet]:
    """The watch that fits: nothing, lines, or moving ones."""
    is_moving = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    watch = Quiet() if quiet else Moving() if is_moving else PlainLines()
    try:
        yield watch
    finally:
        watch.close()


def named(agent: str, text: str) -> str:
    return f"{agent}: {text}" if agent else text


def _number(number: int, of: int) -> str:
    return f"{number} of {of}"
