"""`satchel show`, `diff`, `steps` and `blame`: what a run has done, and how it was at any record."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from ....workspace.base import UsageError, lines, visible
from ....workspace.history import Call, CallChange, CallDetail, MessageChange, Origin, StepHistory, Work
from ....workspace.journal import Line
from ....workspace.state import folder_of_agent
from ...api import Blame, Blamed, Difference, Handle, LogRow, ShowResult
from ...present import (
    CALLS,
    CHANGES,
    Piece,
    answer_line,
    attempt_line,
    call_facts,
    call_json,
    call_name,
    colour,
    cost_json,
    cost_lines,
    counted,
    cut,
    describe_call,
    describe_record,
    detail_json,
    json_line,
    one_line,
    place_words,
    side_rows,
    timing_json,
    timing_lines,
)
from ..options import (
    complete_moment,
    complete_position,
    completing,
    find,
    is_workspace,
    json_option,
    split,
    storage_option,
)
from ..output import (
    INDENT,
    SHORT,
    columns,
    data_change,
    data_json,
    json_text,
    left_after,
    line,
    pair,
    print_json,
    print_lines,
    utc,
)

_PROMPT = "prompt:"
_NEWEST_MESSAGES = 10  # messages of each agent

_SHOW_EXAMPLES = """\b
Examples:
  satchel show my-digest 42        right after record 42 of `satchel log`
  satchel show my-digest ^3        before item 3 began
  satchel show my-digest ^3/2      call 2 of item 3, whole
  satchel show my-digest prompt:summary@4f5a11c0be27
  satchel show my-digest --json | jq '.agents[""].data'
"""


@click.command("show", epilog=_SHOW_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [AT]", shell_complete=complete_position)
@json_option
@storage_option
def show_command(words: tuple[str, ...], as_json: bool) -> None:
    """Show the state, the plan and the newest messages of all agents as they were at a record; or one call, whole.

    AT is the number of a record, `latest` (the default), an item (^3 or 3-title: before it began, the last time), or
    the name of a checkpoint. With ^3/2, or _agent/2 outside of all items, show call 2 of `satchel steps` with its
    arguments, result, attempts and answers. With prompt:NAME@VERSION, show the text of a prompt in a version that
    `satchel steps` names.
    """
    place, at = split(words, 1)
    if at and at[0].startswith(_PROMPT):
        _print_prompt(place, at[0].removeprefix(_PROMPT), as_json)
        return
    if at and at[0].rpartition("/")[2].isdecimal() and "/" in at[0]:
        _print_call(place.history.call(at[0]), as_json)
        return
    shown = place.history.show(*at)
    if as_json:
        print_json(_shown_as_json(shown))
        return
    print_lines(_told_agent(shown, columns(sys.stdout)))
    if shown.problem:
        click.echo(visible(f"note: {shown.problem}"), err=True)


def _print_call(found: CallDetail, as_json: bool) -> None:
    if as_json:
        print_json(detail_json(found))
        return
    print_lines(_told_detail(found, columns(sys.stdout)))


def _told_detail(found: CallDetail, width: int) -> Iterator[str]:
    call = found.call
    kind = "effect" if call.effect else "step"
    tone = colour(CALLS.get(call.state))
    yield line(f"{found.name}  {kind} {call_name(call)}  ({call.state})", width, fg=tone, bold=True)
    for name, text in call_facts(found):
        yield line(f"  {name:<8}  {text}", width)
    yield from _told_part("arguments", found.arguments)
    if found.arguments is None:
        yield line(f"  only the beginning is kept: {call.call}", width, dim=True)
    if call.state == "completed":
        yield from _told_part(f"result (also in {call.result_in})" if call.result_in else "result", found.result)
    elif call.error:
        yield from ("", line("error", width, bold=True))
        yield from _text(call.error, 0)
        yield from (line(f"    {each}", width) for each in found.frames)
    said = [*map(attempt_line, call.troubles), *map(answer_line, found.answers)]
    if said:
        yield from ("", line("attempts and answers", width, bold=True))
        yield from (line(f"  {each}", width) for each in said)
    yield from ("", line("records", width, bold=True))
    yield from (_record(each, width, is_dim=False) for each in found.records)


def _told_part(name: str, value: Any) -> Iterator[str]:
    """Whole: a person has asked for this one."""
    yield from ("", line(name, 0, bold=True))
    yield from _text(value, 0) if isinstance(value, str) else _value(value, 0)


def _print_prompt(place: Handle, named: str, as_json: bool) -> None:
    name, _, version = named.rpartition("@")
    if not name:
        raise UsageError(
            f"no version of the prompt {version!r} is named",
            remedy=f"write {_PROMPT}{version}@VERSION; `satchel steps` shows which versions were used",
        )
    text = place.history.prompt(name, version)
    if as_json:
        print_json({"name": name, "version": version, "text": text})
    else:
        click.echo("\n".join(map(visible, text.removesuffix("\n").split("\n"))))


def _shown_as_json(shown: ShowResult) -> dict[str, Any]:
    records = {name: row.record if row else None for name, row in _rows(shown).items()}
    agents = {
        each.path: {
            "status": each.status,
            "open": each.open,
            "data": each.data,
            "plan": each.plan,
            "messages": each.messages,
            "logs": each.logs,
            "files": each.files,
        }
        for each in shown.agents
    }
    return {
        "url": shown.url,
        "run_id": shown.run_id,
        "seq": shown.seq,
        "newest": shown.newest,
        "status": shown.status,
        **records,
        "agents": agents,
        "problem": shown.problem,
    }


def _rows(shown: ShowResult) -> dict[str, LogRow | None]:
    return {"before": shown.before, "record": shown.record, "after": shown.after}


def _told_agent(shown: ShowResult, width: int) -> Iterator[str]:
    reason = f": {shown.moment.reason}" if shown.moment.reason else ""
    yield line(f"record {shown.seq:,} of {shown.newest:,}: {shown.status}{reason}", width, bold=True)
    if shown.record is None:
        yield f"  the record itself is not kept; this is the checkpoint of record {shown.seq:,}"
    for name, row in _rows(shown).items():
        if row is not None:
            yield _record(row.line, width, is_dim=name != "record")
    for agent in shown.agents:
        folder = folder_of_agent(agent.path)
        yield ""
        named = f" ({agent.status}; open: {', '.join(agent.open) or 'nothing'})" if folder else ""
        yield line(f"{folder}todo.md{named}", width, bold=True)
        yield from _text(agent.plan, width)
        yield ""
        yield line(f"{folder}state.json", width, bold=True)
        yield from _value(agent.data, width)
        if agent.messages:
            yield ""
            yield line(f"{folder}messages.jsonl ({counted(len(agent.messages), 'message')})", width, bold=True)
            for said in agent.messages[-_NEWEST_MESSAGES:]:
                yield _message(said["seq"], said, width)
        for name, rows in agent.logs.items():
            yield ""
            yield line(f"{folder}logs/{name}.jsonl ({counted(rows, 'row')})", width, bold=True)
        if agent.files:
            yield ""
            yield line(f"{folder}files ({counted(len(agent.files), 'file')})", width, bold=True)
            yield from (f"  {visible(path)}  version {version}" for path, version in agent.files.items())


def _record(found: Line, width: int, *, is_dim: bool) -> str:
    """As in the log."""
    said = describe_record(found.record)
    text = f"{found.seq:>8}  {utc(found.at)}  {said.line}"
    return line(text, width, fg=None if is_dim else colour(said.tone), dim=is_dim)


def _text(content: str, width: int) -> Iterator[str]:
    """A text of several lines."""
    for each in lines(content.removesuffix("\n")) if content else ():
        yield line(INDENT + each, width)


def _value(found: Any, width: int) -> Iterator[str]:
    """JSON in several lines."""
    yield from _text(json.dumps(found, indent=2, ensure_ascii=False), width)


def _message(seq: int, said: dict[str, Any], width: int) -> str:
    name = f"{INDENT}{seq:>6}  {said['role']}: "
    return line(name + _spoken(said, left_after(name, width)), width)


T = TypeVar("T")
_SHOWN_CHANGES = 60  # lines of a part
_LONG = 10_000  # characters of a result that are compared

_DIFF_EXAMPLES = """\b
Examples:
  satchel diff my-digest 42 57         from record 42 to record 57
  satchel diff my-digest ^3            since before item 3 began
  satchel diff my-digest other-digest  two runs, as they are now
  satchel diff my-digest 42 --exit-code --json
"""


@click.command("diff", epilog=_DIFF_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] A [B] | WS1 WS2", shell_complete=complete_position)
@click.option("--exit-code", "as_code", is_flag=True, help="Exit with 1 if there is a difference.")
@json_option
@storage_option
@click.pass_context
def diff_command(ctx: click.Context, words: tuple[str, ...], as_code: bool, as_json: bool) -> None:
    """Compare two moments of a run, or two runs: the state, the plans, and the results of steps and effects.

    A and B name records as in `satchel show`; B is `latest` if it is left out. Steps of two runs are compared if they
    have the same item or scope, name and arguments.
    """
    found = _compare(words)
    if as_json:
        print_json(_difference_json(found) | {"is_empty": found.is_empty})
    else:
        print_lines(_told_diff(found, columns(sys.stdout)))
        for side in {each.url: each for each in (found.old, found.new)}.values():
            if side.since > 1:
                note = f"note: {side.url} has no records before {side.since:,}, so older items are not compared"
                click.echo(visible(note), err=True)
    ctx.exit(1 if as_code and not found.is_empty else 0)


def _compare(words: tuple[str, ...]) -> Difference:
    if len(words) == 2 and all(map(is_workspace, words)):
        return find(words[0]).history.diff(find(words[1]))
    place, positions = split(words, 2)
    if not positions:
        raise click.UsageError("name a record to compare with, or another run")
    return place.history.diff(*positions)


def _told_diff(found: Difference, width: int) -> Iterator[str]:
    old, new = found.old, found.new
    names = [f"record {side.seq:,}" for side in (old, new)]
    if old.url != new.url:
        names = [f"{side.url} at {name}" for side, name in zip((old, new), names, strict=True)]
        yield line(f"- {names[0]}", width, bold=True)
        yield line(f"+ {names[1]}", width, bold=True)
    else:
        yield line(" -> ".join(names), width, bold=True)
    rows = [row for row in side_rows(found) if row.differs]
    for row in rows:
        yield line(f"{row.name:<10}  {row.old} -> {row.new}", width)
    for agent, changes in _by_agent(found.data):
        yield from _part(f"{folder_of_agent(agent)}state.json", changes, data_change, width)
    for plan in found.plans:
        yield from _part(f"{folder_of_agent(plan.agent)}todo.md", plan.lines, _plan_line, width)
    for agent, said in _by_agent(found.messages):
        yield from _part(f"{folder_of_agent(agent)}messages.jsonl", said, _message_change, width)
    for file in found.files:
        lines = file.lines or [f"{file.kind}, and no short text"]
        yield from _part(f"files/{file.path} ({file.kind})", lines, _plan_line, width)
    yield from _part("steps and effects", found.calls, _call_change, width)
    if found.is_empty:
        yield "nothing else differs" if rows else "no difference"


def _by_agent(changes: Sequence[Any]) -> Iterable[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for change in changes:
        found.setdefault(change.agent, []).append(change)
    return found.items()


def _part(title: str, changes: Sequence[T], tell: Callable[[T, int], str], width: int) -> Iterator[str]:
    if not changes:
        return
    yield ""
    yield line(title, width, bold=True)
    for change in changes[:_SHOWN_CHANGES]:
        yield tell(change, width)
    if len(changes) > _SHOWN_CHANGES:
        yield f"  and {len(changes) - _SHOWN_CHANGES:,} more: --json shows all"


def _plan_line(found: str, width: int) -> str:
    """A line of a unified diff."""
    return line(INDENT + found, width, fg={"+": "green", "-": "red", "@": "cyan"}.get(found[:1]))


def _message_change(change: MessageChange, width: int) -> str:
    sign, tone = CHANGES[change.kind]
    said = change.new or change.old or {}
    name = f"{INDENT}{sign} {change.seq}  {said['role']}: "
    if change.old and change.new:
        room = left_after(name, width)
        text = pair(json_text(change.old["content"]), json_text(change.new["content"]), room)
    else:
        text = _spoken(said, left_after(name, width))
    return line(name + text, width, fg=colour(tone))


def _spoken(said: dict[str, Any], width: int) -> str:
    content = said["content"]
    return one_line(content, width or SHORT) if isinstance(content, str) else json_line(content, width or SHORT)


def _call_change(change: CallChange, width: int) -> str:
    sign, tone = CHANGES[change.kind]
    found = change.new or change.old
    assert found is not None
    name = f"{INDENT}{sign} {place_words(change.agent, change.scope)}  {call_name(found, width // 2)}  "
    if change.old and change.new:
        said = pair(describe_call(change.old, _LONG), describe_call(change.new, _LONG), left_after(name, width))
    else:
        said = describe_call(found, left_after(name, width))
    return line(name + said, width, fg=colour(tone))


def _difference_json(found: Difference) -> dict[str, Any]:
    """With whole values."""
    return {
        "old": msgspec.to_builtins(found.old),
        "new": msgspec.to_builtins(found.new),
        "data": [data_json(change) for change in found.data],
        "plans": msgspec.to_builtins(found.plans),
        "calls": [_change_json(change) for change in found.calls],
        "messages": msgspec.to_builtins(found.messages),
        "files": msgspec.to_builtins(found.files),
    }


def _change_json(change: CallChange) -> dict[str, Any]:
    said = {"agent": change.agent, "scope": change.scope, "title": change.title, "kind": change.kind}
    return said | {name: call_json(call) for name, call in (("old", change.old), ("new", change.new)) if call}


_STEPS_EXAMPLES = """\b
Examples:
  satchel steps my-digest
  satchel steps my-digest 3            item 3, as are ^3 and 3-title
  satchel steps my-digest 3 --json     with whole results
  satchel steps my-digest --timeline   drawn in time, with the waits
  satchel steps my-digest --cost       what it has cost
"""

_STATES = {
    "open": ("open", "yellow"),
    "committed": ("committed", "green"),
    "skipped": ("skipped", None),
    "dropped": ("dropped by a person", None),
    "undone": ("undone", "magenta"),
    "pruned": ("records gone", None),
}


@click.command("steps", epilog=_STEPS_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [ITEM]", shell_complete=complete_position)
@click.option(
    "--at", metavar="AT", shell_complete=complete_moment, help="As it was at this record, named as in `satchel show`."
)
@click.option(
    "--timeline", "shown", flag_value="timeline", help="Draw when each call worked, and when it waited and why."
)
@click.option(
    "--cost", "shown", flag_value="cost", help="Show tokens and money by step, model, item and call, and the budget."
)
@json_option
@storage_option
def steps_command(words: tuple[str, ...], at: str | None, shown: str | None, as_json: bool) -> None:
    """Show what the items have done, finished or open: steps and effects with results, times and failed attempts."""
    place, item = split(words, 1)
    if shown:
        _print_drawn(place, shown, item, at, as_json)
        return
    found = place.history.steps(*item, at=at)
    if as_json:
        print_json(_work_json(found))
    else:
        width = columns(sys.stdout)
        for work in found.work:
            click.echo("\n".join(_told_work(work, width)))  # each echo costs as much as a line
        if not found.work:
            click.echo("no step is on record")
    if found.since > 1 and not as_json:
        click.echo(
            f"note: there are no records before {found.since:,}, and of items that had ended by then only effects",
            err=True,
        )
    if found.problem and not as_json:
        click.echo(visible(f"note: {found.problem}"), err=True)


def _told_work(work: Work, width: int) -> Iterator[str]:
    state, colour = _STATES[work.state]
    records = f"records {work.begun:,} to {work.ended:,}" if work.begun and work.ended else ""
    records = records or (f"since record {work.begun:,}" if work.begun else "")
    failures = f"failed {counted(work.failures, 'time')}" if work.failures else ""
    facts = (state, counted(len(work.calls), "call"), f"{work.ms:,} ms", failures, records)
    said = ", ".join(filter(None, facts if work.scope or work.state == "undone" else facts[1:3]))
    title = f"  {one_line(work.title)}" if work.title else ""
    yield line(f"{place_words(work.agent, work.scope)}{title}  ({said})", width, fg=colour, bold=True)
    for call in work.calls:
        yield from _told_call(call, width)


def _told_call(call: Call, width: int) -> Iterator[str]:
    took = f"{call.ms:,} ms" if call.ms else ""
    head = f"{call.no:>4}  {'effect' if call.effect else 'step'}  {took:>8}  {call_name(call, width // 2)}"
    yield line(f"{head} -> {describe_call(call, width)}", width, fg=colour(CALLS.get(call.state)))
    for trouble in call.troubles:
        yield line(f"{'':6}{attempt_line(trouble)}", width, fg="red")
    more = [f"model {call.model}"] * bool(call.model)
    more += [f"prompt {name}@{version}" for name, version in call.prompts.items()]
    if more:
        yield line(f"{'':6}{', '.join(more)}", width, dim=True)


def _work_json(found: StepHistory) -> dict[str, Any]:
    """With whole results."""
    work = [
        {name: each for name, each in asdict(work).items() if name != "calls"}
        | {"ms": work.ms, "calls": [*map(call_json, work.calls)]}
        for work in found.work
    ]
    problem = str(found.problem) if found.problem else ""
    return {"seq": found.moment.seq, "since": found.since, "problem": problem, "work": work}


def _print_drawn(place: Handle, shown: str, item: Sequence[str], at: str | None, as_json: bool) -> None:
    """`satchel steps --timeline` and `--cost`."""
    width = columns(sys.stdout)
    found: dict[str, Any] | Iterator[list[Piece]]
    if shown == "timeline":
        timing = place.history.timing(*item, at=at)
        problem, found = timing.problem, timing_json(timing) if as_json else timing_lines(timing, width)
    elif item:
        raise UsageError("--cost is that of the whole run", remedy=f"leave out {item[0]}, and look at its row")
    else:
        costs, budget = place.history.costs(at=at), place.status().budget
        problem, found = costs.problem, cost_json(costs, budget) if as_json else cost_lines(costs, budget, width)
    if isinstance(found, dict):
        print_json(found)
        return
    for pieces in found:
        click.echo("".join(click.style(visible(text), fg=colour(tone)) for text, tone in pieces))
    if problem:
        click.echo(visible(f"note: {problem}"), err=True)


_WIDE = 40  # columns of a path, and of a value

_BLAME_EXAMPLES = """\b
Examples:
  satchel blame my-digest                             all values of the data
  satchel blame my-digest state.json/summaries        all below a key
  satchel blame my-digest agents/reader/state.json    the data of a sub-agent
  satchel blame my-digest todo.md/^3                  who wrote and ticked it
  satchel blame my-digest messages.jsonl/57           who said it
"""


def _paths(place: Handle) -> list[CompletionItem]:
    folders = [folder_of_agent(each.path) for each in place.history.show().agents]
    return [CompletionItem(folder + file) for folder in folders for file in ("state.json", "todo.md", "messages.jsonl")]


@click.command("blame", epilog=_BLAME_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [PATH]", shell_complete=completing(_paths))
@json_option
@storage_option
def blame_command(words: tuple[str, ...], as_json: bool) -> None:
    """Show which record set each value: the commit of an item, a person's edit, a migration, and with which prompts.

    PATH is state.json (the default), todo.md or messages.jsonl, of a sub-agent agents/NAME/state.json, and then what is
    in it. A `/` in
    a key is written ~1. The columns are the place, the value, the record (`satchel show` shows the run there), its time
    and what it was.
    """
    place, rest = split(words, 1)
    found = place.history.blame(*rest)
    if as_json:
        print_json(_blame_as_json(found))
        return
    print_lines(_told_blame(found, columns(sys.stdout)))
    if not found.values:
        click.echo(visible(f"{found.file} has no values yet"), err=True)
    if found.problem:
        click.echo(visible(f"note: up to record {found.newest:,}; {found.problem}"), err=True)


def _blame_as_json(found: Blame) -> dict[str, Any]:
    values = [
        {
            "path": each.path,
            "value": each.value,
            "origin": msgspec.to_builtins(each.origin),
            "brought_back_by": each.brought_back_by or None,
        }
        for each in found.values
    ]
    return {"file": found.file, "values": values, "newest": found.newest, "problem": found.problem}


def _told_blame(found: Blame, width: int) -> Iterator[str]:
    paths = [cut(visible(each.path or "/"), _WIDE) for each in found.values]
    values = [json_line(each.value, _WIDE) for each in found.values]
    wide = max(map(len, paths), default=0), max(map(len, values), default=0)
    for path, value, each in zip(paths, values, found.values, strict=True):
        origin = each.origin
        text = f"{path:<{wide[0]}}  {value:<{wide[1]}}  {origin.seq:>6}  {utc(origin.at):<20}  {_what(each)}"
        yield line(text.rstrip(), width)


def _what(each: Blamed) -> str:
    origin = each.origin
    said = _WORDS[origin.kind](origin)
    said += "".join(f" [prompt {name}@{'/'.join(versions)}]" for name, versions in origin.prompts.items())
    said += "".join(f"; {hand.did} by {hand.by} (record {hand.seq})" for hand in origin.people)
    return said + (f"; brought back by record {each.brought_back_by:,}" if each.brought_back_by else "")


def _scope(origin: Origin) -> str:
    if not origin.scope:
        return "the agent itself"
    named = origin.scope[1:] if origin.scope.startswith("_") else f"^{origin.scope} {origin.title}"
    return f"{origin.agent}: {named}" if origin.agent else named


_WORDS: dict[str, Callable[[Origin], str]] = {
    "commit": lambda origin: _scope(origin),
    "begun": lambda origin: f"begun: {_scope(origin)}",
    "edit": lambda origin: f"edited by {origin.by}",
    "plan": lambda origin: f"plan changed by {origin.by}",
    "migration": lambda origin: f"migration to version {origin.version} of the state type",
    "put": lambda origin: "a program",
    "earlier": lambda origin: f"record {origin.seq:,} or earlier",
}
