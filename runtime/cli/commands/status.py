"""`satchel status` and `log`: where a run is, what to type next, and what has happened in it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from ....workspace.base import UsageError, visible
from ....workspace.state import Moment
from ...api import RECORD_TYPES, Handle, LogRow, ProcessLine, RunStatus
from ...present import (
    AgentLine,
    agent_lines,
    approval_line,
    at_work_line,
    backup_lines,
    budget_lines,
    call_name,
    colour,
    counted,
    cut,
    describe_record,
    describe_retry,
    detail,
    diagnose,
    diagnosis_json,
    diagnosis_lines,
    file_lines,
    inbox_line,
    json_line,
    missing_log,
    one_line,
    pause_lines,
    progress,
    queue_lines,
    schedule_lines,
    since,
    size,
    state_colour,
    uncalled_line,
    usage_line,
)
from .. import summary
from ..group import code_of
from ..options import find, json_option, note_json, workspace_argument
from ..output import columns, fold, print_json, print_lines, remarks, utc, visible_json


def schedule_as_json(status: RunStatus) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "next": each.next or None,
            "last": each.last.due if each.last else None,
            "unopened": each.last.unopened if each.last else None,
        }
        for each in status.schedule
    ]


_TITLE = 10  # columns
_SHOWN = 5  # outputs and streams that are listed
_WORTH_TELLING = 1_000_000
_TEXT = 100  # characters of an item or a call

_STATUS_EXAMPLES = """\b
Examples:
  satchel status my-digest
  satchel status --watch my-digest
  satchel status --json my-digest | jq .state
"""


@click.command("status", epilog=_STATUS_EXAMPLES)
@workspace_argument
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Show it again when it changes, until the run has completed or is cancelled. With --json a line each time.",
)
@json_option
@click.pass_context
def status_command(ctx: click.Context, workspace: str | None, watch: bool, as_json: bool) -> None:
    """Show the state of a run: what is done, what is running, and what the run needs from you.

    Reads only: changes no file, takes no lock, and runs no code of the agent. Shows as much of a damaged workspace as
    it can read (exit code 2).
    """
    place = find(workspace)
    status = _follow(place, as_json) if watch else place.status()
    if status.definition is None and status.problem and not as_json:
        raise status.problem
    if as_json and not watch:
        print_json(_json(status))
    elif not watch:
        print_lines(_lines(place, status, columns(sys.stdout)))
    if status.problem:
        if not as_json:
            raise status.problem
        ctx.exit(code_of(status.problem))


def _follow(place: Handle, as_json: bool) -> RunStatus:
    """Show the status whenever it has changed, until the run is over. Returns the last one. A terminal shows one at a
    time, and no more lines than it has; a pipe gets all, with an empty line between two."""
    from ...api import OVER, Latest  # one look needs no more

    latest, shown = Latest(place), list[str]()
    is_screen = not as_json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    while True:
        shot = latest.look()
        status = shot.status
        if as_json:
            told = _json(replace(status, problem=shot.problem or status.problem))
            lines = [visible_json(json.dumps(told, ensure_ascii=False, default=str))]
        else:
            note = [_row("note", f"{shot.problem}. This is what was read last")] if shot.problem else []
            lines = [*_lines(place, status, columns(sys.stdout)), *note]
        if lines != shown:
            if is_screen:
                _redraw(lines)
            else:
                click.echo("\n".join(["", *lines] if shown and not as_json else lines))
            shown = lines
        is_over = status.state in OVER and not status.has_new_work
        if is_over or status.state in ("moved", "backup") or status.definition is None:
            return status
        time.sleep(latest.rest)


def _redraw(lines: list[str]) -> None:
    """Replace what the terminal shows, without a moment at which it is empty."""
    from shutil import get_terminal_size

    most = max(2, get_terminal_size().lines - 1)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"and {counted(len(lines) - most + 1, 'more line')}: satchel status"]
    sys.stdout.write("\x1b[H")
    for line in lines:
        click.echo(line, nl=False)
        sys.stdout.write("\x1b[K\n")
    sys.stdout.write("\x1b[J")
    sys.stdout.flush()


def _lines(place: Handle, status: RunStatus, width: int) -> Iterator[str]:
    if status.definition:
        run_id = click.style(status.definition.run_id, bold=True)
        yield f"{'run':<{_TITLE}}{run_id}  in {visible(status.url)}"
        code = status.moment.code if status.moment else ""
        if status.definition.kind:
            yield _row("kind", status.definition.kind)
        else:
            yield _row("agent", f"{status.definition.agent}{f', code {code}' if code else ''}")
    yield from (_row(each.title, each.text) for each in queue_lines(status))
    state = click.style(status.state, fg=state_colour(status.state), bold=True)
    first, *more = fold(f"{status.state}{detail(status)}", width, _TITLE)
    yield f"{'state':<{_TITLE}}" + visible(first).replace(status.state, state, 1)
    yield from (_row("", line) for line in more)
    if (moment := status.moment) is not None:
        yield from _diagnosis(status, width)
        if moment.forked is not None:
            was = moment.forked
            what = "; for a replay, so only `satchel resume` continues it" if moment.is_replay else ""
            yield from _row_of("forked", f"from record {was.seq:,} of {was.run_id} in {was.url}{what}", width)
        yield from _value("input", status.input)
        yield from _work(status)
        yield from _agents(moment)
        yield from _value("result", status.result)
        yield from _made(place, moment)
        if not moment.is_new:
            yield _row("usage", usage_line(moment))
        if uncalled := uncalled_line(moment):
            yield from _row_of("effects", uncalled, width)
        yield from _rows("budget", (each.text for each in budget_lines(status)), width)
        yield from _rows("schedule", schedule_lines(status), width)
        if status.at:
            yield _row("last", f"record {moment.seq}, {since(status.at)}")
        yield from _rows("backup", backup_lines(status), width)
        if status.history and (status.history.kept_from > 1 or status.history.bytes >= _WORTH_TELLING):
            files, bytes_, begins = status.history
            yield _row("history", f"{size(bytes_)} in {counted(files, 'file')}, kept from record {begins:,} on")
    for id, each in status.approved.items():
        yield from _row_of("approved", f"{approval_line(id, each)}; {place.command('answer', id)} --revoke", width)
    for complaint in status.complaints:
        yield from _row_of("note", complaint, width)
    yield from _rows("pause", pause_lines(status), width)
    for found in file_lines(status, place.command("merge")):
        yield from _row_of(found.title, found.text, width)
    report = [] if status.state == "held" else status.report  # each program that opens it leaves one
    for number, line in enumerate(remarks(report, width - _TITLE if width else 0)):
        yield f"{'opening' if number == 0 else '':<{_TITLE}}{line}".rstrip()
    for asked in status.questions:
        yield ""
        yield from summary.question_lines([asked], place, width)
    if status.next:
        yield f"{'next':<{_TITLE}}{click.style(visible(status.next), bold=True)}"


def _diagnosis(status: RunStatus, width: int) -> Iterator[str]:
    """What the state does not say of a run that can be read: an error is told at the end."""
    found = diagnose(status) if status.problem is None else None
    named = ""
    for name, line in diagnosis_lines(found) if found else ():
        yield from _row_of("" if name == named else name, line, width)
        named = name


def _row_of(title: str, text: str, width: int) -> Iterator[str]:
    for number, line in enumerate(fold(text, width, _TITLE)):
        yield _row("" if number else title, line)


def _rows(title: str, texts: Iterable[str], width: int) -> Iterator[str]:
    """One title for all of them."""
    for number, text in enumerate(texts):
        yield from _row_of("" if number else title, text, width)


def _value(title: str, value: Any) -> Iterator[str]:
    if value is not None:
        yield _row(title, json_line(value, _TEXT))


def _agents(moment: Moment) -> Iterator[str]:
    """The sub-agents, each below its parent."""
    told = [(each, "  " * each.depth + each.path.rpartition("/")[2]) for each in agent_lines(moment)]
    width = max((len(name) for _, name in told), default=0)
    for number, (each, name) in enumerate(told):
        items = f"  {done}" if (done := progress(each.plan)) else ""
        yield _row(
            "" if number else "agents", f"{name:<{width}}  {each.status}{items}{f'; {each.at}' if each.at else ''}"
        )


def _agent_json(moment: Moment, line: AgentLine) -> dict[str, Any]:
    agent = moment.agents[line.path]
    settled, leaves = line.plan.progress
    return {
        "agent": line.path,
        "status": line.status,
        "items": {"done": settled, "all": leaves},
        "error": msgspec.to_builtins(agent.error),
        "folder": agent.folder,
    }


def _row(title: str, text: str) -> str:
    return f"{title:<{_TITLE}}{visible(text)}".rstrip()


def _work(status: RunStatus) -> Iterator[str]:
    if status.plan and status.plan.tasks:
        yield _row("items", "; ".join(filter(None, (progress(status.plan), at_work_line(status)))))
        if (ahead := status.forecast) is not None:
            yield _row("", ahead.words)
    for number, (key, scope) in enumerate([*status.scopes.items()][:_SHOWN]):
        newest = next(scope.newest(1), None)
        last = f", the last: {call_name(newest)}" if newest else ""
        is_it = status.at_work and key == status.at_work.id and len(status.scopes) == 1
        of = " of it" if is_it else f" of {one_line(scope.title, 40)!r}"
        yield _row("" if number else "steps", f"{counted(scope.finished, 'step')}{of} kept{last}")
    if len(status.scopes) > _SHOWN:
        yield _row("", f"and {len(status.scopes) - _SHOWN} more")
    for number, call in enumerate(status.running[:_SHOWN]):
        yield _row("" if number else "running", call.words)
    if len(status.running) > _SHOWN:
        yield _row("", f"and {len(status.running) - _SHOWN} more")
    for number, each in enumerate(status.retries[:_SHOWN]):
        yield _row("" if number else "retry", describe_retry(each))
    if inbox := inbox_line(status):
        yield _row("inbox", inbox)
    for stream in status.streams[:_SHOWN]:
        damaged = ", damaged" if stream.damaged else ""
        yield _row("stream", f"{stream.path}: {counted(len(stream.text), 'character')}{damaged}")
    if len(status.streams) > _SHOWN:
        yield _row("", f"and {len(status.streams) - _SHOWN} more")


def _made(place: Handle, moment: Moment) -> Iterator[str]:
    outputs = sorted(moment.outputs.items())
    for number, (path, output) in enumerate(outputs[:_SHOWN]):
        yield _row("" if number else "outputs", f"{one_line(path, _TEXT)} ({size(output.bytes)})")
    if len(outputs) > _SHOWN:
        yield _row("", f"and {len(outputs) - _SHOWN} more in {place.store.url}/outputs")


def _json(status: RunStatus) -> dict[str, Any]:
    moment, task = status.moment, status.at_work
    known = summary.status_json(status) | {"diagnosis": diagnosis_json(diagnose(status)), "next": status.next or None}
    if moment is None:
        return known
    return known | {
        "position": {"seq": moment.seq, "epoch": moment.epoch, "closed": moment.clean},
        "error": msgspec.to_builtins(moment.error),
        "at_work": {"id": task.id, "text": task.text, "begun": task.mark == "begun"} if task else None,
        "forecast": (
            {"items_per_minute": round(60 / ahead.each, 3), "seconds_left": round(ahead.left, 1)}
            if (ahead := status.forecast) is not None
            else None
        ),
        "scopes": [
            {
                "id": key,
                "title": scope.title,
                "steps": scope.finished,
                "last_step": next((each.step for each in scope.newest(1)), None),
            }
            for key, scope in status.scopes.items()
        ],
        "running": [
            {
                "agent": each.agent,
                "scope": each.scope,
                "step": each.step,
                "call": each.call,
                "since": each.since,
                "seconds": round(each.seconds, 1),
            }
            for each in status.running
        ],
        "retries": [each._asdict() for each in status.retries],
        "streams": [
            {"file": each.path, "characters": len(each.text), "damaged": each.damaged} for each in status.streams
        ],
        "input": status.input,
        "result": status.result,
        "forked": msgspec.to_builtins(moment.forked),
        "is_replay": moment.is_replay,
        "attempt": moment.attempt,
        "until": moment.until or None,
        "usage": msgspec.to_builtins(moment.usage),
        "history": status.history._asdict() if status.history else None,
        "budget": {
            share.kind: {"used": share.used, "limit": share.limit, "used_up": share.is_used_up}
            for share in status.budget
        },
        "schedule": schedule_as_json(status),
        "outputs": {path: msgspec.to_builtins(output) for path, output in moment.outputs.items()},
        "questions": summary.questions_json(status.questions),
        "approved": [
            {"id": id, "tool": each.tool, "agent": each.agent, "by": each.by, "at": each.at, "uses": each.uses}
            for id, each in status.approved.items()
        ],
        "agents": [_agent_json(moment, each) for each in agent_lines(moment)],
        "complaints": status.complaints,
        "edits": _foreseen(status),
        "conflicts": [
            {"file": each.path, "places": [*map(str, each.places)]}
            for each in (status.noticed.questions if status.noticed else ())
        ]
        + ([{"file": status.begun.path, "places": [str(status.begun)]}] if status.begun else []),
        "report": summary.report_json(status.report),
    }


def _foreseen(status: RunStatus) -> list[str]:
    """What a start makes of people's edits."""
    noticed = status.noticed
    if noticed is None:
        return []
    said = [f"{edit.record.file}: {say}" for edit in noticed.edits for say in edit.record.says]
    said += [f"a start asks: {noticed.back.question}"] if noticed.back else []
    return said + [f"refused: {line}" for each in noticed.refusals for line in str(each.error).splitlines()]


_TOGETHER = 200  # lines
_NARROW = 110  # columns below which the day has a line of its own

_LOG_EXAMPLES = """\b
Examples:
  satchel log my-digest
  satchel log -n 20 my-digest
  satchel log --item 3 --type 'step.*' my-digest
  satchel log --agent left --step ask --since 2h my-digest
  satchel log -f my-digest
  satchel log --json my-digest | jq -c 'select(.type == "doubt")'
  satchel log --process -n 50 my-digest     what its process has printed
"""


def _types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [each for each in RECORD_TYPES if each.startswith(incomplete)]


@click.command("log", epilog=_LOG_EXAMPLES)
@workspace_argument
@click.option(
    "-n", "--last", "count", metavar="N", type=click.IntRange(min=1), help="Show only the last N records or lines."
)
@click.option("--item", metavar="ID", help="Show only this item (3, ^3) or named scope (_NAME).")
@click.option(
    "--type",
    metavar="TYPE",
    shell_complete=_types,
    help=f"Show only this type, or those of a pattern ('step.*'): {', '.join(RECORD_TYPES)}.",
)
@click.option(
    "--agent", metavar="PATH", help="Show only this sub-agent (left/deep) and those below it; . is the run's own."
)
@click.option("--step", metavar="NAME", help="Show only the steps and effects of this name.")
@click.option(
    "--since", metavar="TIME", help="Show only records since a time (22:30, 2026-11-22 22:30), or of the last 2h."
)
@click.option("--audit", is_flag=True, help="Show only who opened, stopped, edited or answered what, and checkpoints.")
@click.option(
    "-f", "--follow", is_flag=True, help="Then show what happens, until the run has completed or is cancelled."
)
@click.option(
    "--process", "of_process", is_flag=True, help="Show instead what processes of the run have printed (run.log)."
)
@click.option(
    "--json", "as_json", is_flag=True, callback=note_json, help="Print the lines of the journal with all their keys."
)
def log_command(
    workspace: str | None, count: int | None, follow: bool, of_process: bool, as_json: bool, **chosen: Any
) -> None:
    """Print the journal, oldest record first: number, time (UTC), epoch, and what happened.

    Of a damaged journal, prints all records that it can read, and then what is wrong.

    --process prints what the processes of the run have printed, as far as `--detach`, `satchel serve` or the page has
    started them. Each start is marked with its time.
    """
    place = find(workspace)
    if of_process:
        _refuse_with_process(chosen)
        _print_process_log(place, count, follow, as_json)
        return
    rows = place.history.log(last=count, follow=follow, **chosen)
    _print_record((_log_as_json if as_json else _log_lines)(rows, chosen["audit"]), at_once=follow)


def _print_record(lines: Iterable[str], *, at_once: bool) -> None:
    """`at_once`: each line when it comes. Otherwise several, because that is faster."""
    waiting: list[str] = []
    try:
        for line in lines:
            waiting.append(line)
            if at_once or len(waiting) == _TOGETHER:
                text = "\n".join(waiting)
                waiting.clear()
                click.echo(text)
    finally:
        if waiting:
            click.echo("\n".join(waiting))


def _log_as_json(rows: Iterable[LogRow], audit: bool) -> Iterator[str]:
    for row in rows:
        data = row.data[:-1] + b',"who":%b}' % msgspec.json.encode(row.who) if audit else row.data
        yield visible_json(data.decode(errors="replace"))


def _log_lines(rows: Iterable[LogRow], audit: bool) -> Iterator[str]:
    width = columns(sys.stdout)
    is_narrow, day = 0 < width < _NARROW, ""
    for row in rows:
        line = row.line
        if is_narrow and line.at[:10] != day:
            day = line.at[:10]
            yield click.style(f"        {visible(day)}", dim=True)
        said = describe_record(line.record)
        at = utc(line.at)[11:] if is_narrow else utc(line.at)
        who = f"{row.who}  " if audit else ""
        head = visible(f"{line.seq:>6}  {at}  {line.epoch:>3}  {who}")
        text = visible(said.line).replace("\n", " ")
        if width:
            text = cut(text, max(10, width - len(head)))
        yield click.style(head, dim=True) + click.style(text, fg=colour(said.tone))


def _refuse_with_process(chosen: dict[str, Any]) -> None:
    if wrong := [name for name, value in chosen.items() if value]:
        raise UsageError(f"--{wrong[0]} and --process can't be used together", why="it chooses records of the journal")


def _print_process_log(place: Handle, count: int | None, follow: bool, as_json: bool) -> None:
    found = place.history.process_log(last=count, follow=follow)
    lines: Iterator[str] = (_process_line(each, as_json) for each in found)
    if not follow:
        first = next(lines, None)
        if first is None:
            click.echo(missing_log(place.status(brief=True), is_remote=place.store.abilities.remote), err=True)
            return
        lines = itertools.chain((first,), lines)
    _print_record(lines, at_once=follow)


def _process_line(each: ProcessLine, as_json: bool) -> str:
    if as_json:
        return visible_json(msgspec.json.encode({"text": each.text, "start": each.start or None}).decode())
    return click.style(f"start of a process, {utc(each.start)}", bold=True) if each.start else visible(each.text)
