"""`satchel rehearse` and `replay`: try other code, prompts or models, and compare with what is on record."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from ....workspace.base import urls, visible
from ...agent import take_keys
from ...api import (
    EXIT_CODES,
    SEVERITY,
    CallPair,
    RehearsalFinding,
    RehearsalResult,
    ReplayResult,
    open_all,
    rehearse_all,
    rehearse_here,
    typed_changes,
)
from ...present import CHANGES, call_json, call_name, colour, describe_call, json_line, one_line, size, usd
from .. import summary
from ..options import (
    by_option,
    complete_change,
    complete_folders,
    complete_item,
    find,
    find_both,
    is_workspace,
    json_option,
    storage_option,
)
from ..output import INDENT, columns, data_change, data_json, fold, left_after, line, pair, print_json, remarks

_REHEARSE_EXAMPLES = """\b
Examples:
  satchel rehearse ~/runs --code ./new      # all runs under a folder
  satchel rehearse ~/runs/digest --json     # with the code as it is now
"""

_VERDICT_CODES = {
    "same": EXIT_CODES["completed"],
    "gone": EXIT_CODES["completed"],
    "again": EXIT_CODES["paused"],
    "leaves": EXIT_CODES["paused"],
    "asks": EXIT_CODES["waiting"],
    "refused": 2,
    "fails": EXIT_CODES["failed"],
}
_VERDICT_COLOURS = {
    "same": "green",
    "gone": "yellow",
    "again": "yellow",
    "leaves": "yellow",
    "asks": "yellow",
    "refused": "red",
    "fails": "red",
}
_TITLE = 9  # columns


@click.command("rehearse", epilog=_REHEARSE_EXAMPLES)
@click.argument("where", metavar="WS|ROOT", default=".", shell_complete=complete_folders)
@click.option("--code", metavar="FOLDER", help="The new code. [default: the code that a start would import now]")
@click.option("--here", is_flag=True, hidden=True, help="Rehearse in this process, over a folder that may be changed.")
@json_option
def rehearse_command(where: str, code: str | None, here: bool, as_json: bool) -> None:
    """Try new code against open runs before you deploy it. Nothing in their folders changes.

    A copy of each run is entered in a process of its own, without the secrets of the environment, but with the keys of
    sealed values. Recorded calls return their results; at any other step, effect, question or resource that branch
    ends. THIS RUNS CODE: the imports and the agent's own lines, from FOLDER or from the run. So it is not for
    strangers' folders.

    The exit code tells the worst: 0 same, 3 finished steps run again or items stay open, 4 a person is asked, 2
    refused, 1 the code fails.
    """
    if here:
        take_keys(sys.stdin.buffer.read())
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
            only = rehearse_here(find(where).store)  # what its code prints may be sealed
        print_json(msgspec.to_builtins(only), indent=None)
        sys.exit(_VERDICT_CODES[only.verdict])
    handles = [find(where)] if is_workspace(where) else open_all(where)
    if not handles:
        click.echo(f"there are no runs under {visible(where)}", err=True)
    found = list[RehearsalResult]()
    names = {handle.url: handle.named for handle in handles} if len(handles) > 1 else {}
    for each in rehearse_all([handle.store for handle in handles], code):
        found.append(each)
        for said in () if as_json else _rehearsed_lines(each, names.get(each.url, ""), columns(sys.stdout)):
            click.echo(said)
    worst = max((each.verdict for each in found), key=SEVERITY.index, default="same")
    if as_json:
        print_json({"runs": [msgspec.to_builtins(each) for each in found], "exit_code": _VERDICT_CODES[worst]})
    elif len(found) > 1:
        counts = {name: sum(each.verdict == name for each in found) for name in SEVERITY}
        click.echo(", ".join(f"{number} {name}" for name, number in counts.items() if number), err=True)
    sys.exit(_VERDICT_CODES[worst])


def _rehearsed_lines(found: RehearsalResult, folder: str, width: int) -> Iterator[str]:
    """One line for a run, folded if it is long. Several runs are told by `folder`: copies have the same run_id."""
    said = [f"{each.words}{f' ({each.item!r})' if each.item else ''}" for each in _worth(found)]
    said += [found.problem] if found.problem else []
    first, *more = fold(f"{folder or found.run_id or found.url}: {'; '.join(said) or 'nothing is open'}", width, _TITLE)
    yield f"{click.style(f'{found.verdict:<{_TITLE}}', fg=_VERDICT_COLOURS[found.verdict])}{visible(first)}"
    yield from (f"{'':<{_TITLE}}{visible(line)}" for line in more)


def _worth(found: RehearsalResult) -> list[RehearsalFinding]:
    """What the line says: not the next work, if there is anything else."""
    return [each for each in found.findings if each.kind != "next"] or found.findings


_ENDS = {
    "effect": "stopped before an effect",
    "missed": "not reached",
    "failed": "failed",
    "paused": "paused",
    "waiting": "waiting for a person",
    "sleeping": "sleeping",
}
_LONG = 10_000  # characters that are compared


def told_replayed(found: ReplayResult, width: int, *, with_report: bool) -> Iterator[str]:
    title = f"{found.item} ({one_line(found.title)!r})"
    yield line(f"{title} of {found.url} again in {found.to}, from record {found.seq:,}", width, bold=True)
    prompts = (f"prompt {name}@{version}" for name, version in found.prompts.items())
    changed = [*(f"{key} = {json_line(value)}" for key, value in found.settings.items()), *prompts]
    yield line(f"set     {', '.join(changed) or 'nothing'}", width)
    yield from remarks(found.report[1:], width) if with_report else ()
    if found.end != "done":
        why = f": {one_line(found.reason, 400)}" if found.reason and found.end != "waiting" else ""
        yield "\n".join(fold(visible(f"{_ENDS[found.end]}{why}"), width, 2))
    yield from _replayed_part("steps and effects", [_replayed_call(each, width) for each in found.calls], width)
    yield from _replayed_part("state.json", [data_change(each, width) for each in found.data or ()], width)
    yield from _replayed_part("outputs", [*_replayed_outputs(found, width)], width)
    yield ""
    first, second = found.first, found.second
    if first.result != second.result and found.end == "done":
        yield line(f"result  {pair(json_line(first.result, _LONG), json_line(second.result, _LONG), width)}", width)
    facts = [f"{first.ms:,} ms -> {second.ms:,} ms"]
    facts += [f"{first.tokens:,} -> {second.tokens:,} tokens"] if first.tokens or second.tokens else []
    facts += [f"{usd(first.usd)} -> {usd(second.usd)}"] if first.usd or second.usd else []
    yield line(f"cost    {', '.join(facts)}", width)
    if found.is_same:
        yield "no difference"


def _replayed_part(title: str, lines: list[str], width: int) -> Iterator[str]:
    if lines:
        yield from ("", line(title, width, bold=True), *lines)


def _replayed_call(each: CallPair, width: int) -> str:
    call = each.new or each.old
    assert call is not None
    kind = "changed" if each.old and each.new else "added" if each.new else "removed"
    sign, tone = ("=", None) if each.is_same else CHANGES[kind]
    above = f"{each.agent}:" if each.agent else ""
    name = f"{INDENT}{sign} {above}{call_name(call, width // 2)}  "
    room = left_after(name, width)
    if each.kept:
        said = "not done again"
    elif each.is_same or not (each.old and each.new):
        said = describe_call(call, room)
    else:
        said = pair(describe_call(each.old, _LONG), describe_call(each.new, _LONG), room)
    return line(name + said, width, fg=colour(tone), dim=each.is_same)


def _replayed_outputs(found: ReplayResult, width: int) -> Iterator[str]:
    old, new = found.first.outputs, found.second.outputs
    for path in dict.fromkeys((*old, *new)) if found.end == "done" else ():
        was, now = old.get(path), new.get(path)
        if was and now:
            sign, said = (
                ("=", size(now.bytes)) if was.sha256 == now.sha256 else ("~", f"{size(was.bytes)} -> {size(now.bytes)}")
            )
        else:
            sign, said = ("+", size(now.bytes)) if now else ("-", size(was.bytes if was else 0))
        yield line(f"{INDENT}{sign} outputs/{path}  {said}", width, dim=sign == "=")


_REPLAY_EXAMPLES = """\b
Examples:
  satchel replay my-digest ^3 --set model=small --into ../small
  satchel replay my-digest ^3 --set prompt=@new.md --into ../second
  satchel replay my-digest ^3 --set prompt.sum="Sum up {{text}}" --into dst
"""


@click.command("replay", epilog=_REPLAY_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("item", metavar="ITEM", shell_complete=complete_item)
@click.option("--into", "to", metavar="DST", required=True, shell_complete=complete_folders, help="The new run.")
@click.option(
    "--set",
    "chosen",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=complete_change,
    help="Change a setting, or a prompt: prompt.NAME=@FILE or prompt.NAME=TEXT. You can repeat it.",
)
@click.option("--run-id", default="", metavar="ID", help="Name of the new run. [default: made from the old one]")
@by_option
@click.option("--quiet", "-q", is_flag=True, help="Print only the comparison and errors.")
@json_option
@storage_option
def replay_command(
    workspace: str, item: str, to: str, chosen: tuple[str, ...], run_id: str, by: str | None, quiet: bool, as_json: bool
) -> None:
    """Do one item again in a fork, with other prompts or settings, and compare it with the first time.

    WS is only read. DST becomes a new run that begins right before ITEM, does only that item, and is paused then. It
    does no effect: an equal call returns its recorded result, and before any other it stops. `prompt=` alone means the
    only prompt that the item has used.
    """
    place, storage_options = find_both(workspace, to)
    settings, prompts = typed_changes(place, chosen)
    with (
        contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(),
        summary.watching(quiet=quiet) as watch,
    ):
        found = place.history.replay(
            item,
            to,
            settings=settings,
            prompts=prompts,
            watch=watch,
            run_id=run_id,
            by=by,
            storage_options=storage_options,
        )
    code = _code(found)
    if as_json:
        print_json(_replayed_as_json(found) | {"exit_code": code})
    else:
        there = find(to, with_options=urls.is_remote(to))
        for line in told_replayed(found, columns(sys.stdout), with_report=quiet):  # else it was shown when it came
            click.echo(line)
        summary.print_questions(found.questions, there)
        if not quiet:
            click.echo(f"next: {there.command('resume')}", err=True)
    sys.exit(code)


def _code(found: ReplayResult) -> int:
    match found.end:
        case "done":
            return 0
        case "missed":
            return EXIT_CODES["failed"]
        case "effect":
            return EXIT_CODES["paused"]
        case status:
            return EXIT_CODES[status]


def _replayed_as_json(found: ReplayResult) -> dict[str, Any]:
    plain = (
        "url",
        "to",
        "run_id",
        "item",
        "title",
        "seq",
        "settings",
        "prompts",
        "end",
        "status",
        "reason",
        "first",
        "second",
        "failure",
        "report",
        "is_same",
    )
    said = {name: msgspec.to_builtins(getattr(found, name)) for name in plain}
    calls = [
        {"agent": pair.agent, "is_same": pair.is_same, "kept": pair.kept}
        | {name: call_json(call) for name, call in (("old", pair.old), ("new", pair.new)) if call}
        for pair in found.calls
    ]
    data = None if found.data is None else [*map(data_json, found.data)]
    return said | {"calls": calls, "data": data, "questions": summary.questions_json(found.questions)}
