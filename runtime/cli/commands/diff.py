"""`satchel diff`: what two moments of a run differ in, or two runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from ....workspace.state import folder_of_agent
from ...control import Difference
from ..options.place import find, is_workspace, json_option
from ..options.position import complete_position, split
from ..options.storage import storage_option
from ..render import history
from ..render.output import columns, print_json
from ..render.words import visible

T = TypeVar("T")
_SHOWN = 60  # lines of a part

_EXAMPLES = """\b
Examples:
  satchel diff my-digest 42 57         from record 42 to record 57
  satchel diff my-digest ^3            since before item 3 began
  satchel diff my-digest other-digest  two runs, as they are now
  satchel diff my-digest 42 --exit-code --json
"""


@click.command("diff", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] A [B] | WS1 WS2", shell_complete=complete_position)
@click.option("--exit-code", "as_code", is_flag=True, help="Exit with 1 if there is a difference.")
@json_option
@storage_option
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], as_code: bool, as_json: bool) -> None:
    """Compare two moments of a run, or two runs: the state, the plans, and the results of steps and effects.

    A and B name records as in `satchel show`; B is `latest` if it is left out. Steps of two runs are compared if they
    have the same item or scope, name and arguments.
    """
    found = _compare(words)
    if as_json:
        print_json(history.as_json(found) | {"is_empty": found.is_empty})
    else:
        for line in _told(found, columns(sys.stdout)):
            click.echo(line)
        for side in {each.url: each for each in (found.old, found.new)}.values():
            if side.since > 1:
                note = f"note: {side.url} has no records before {side.since:,}, so older items are not compared"
                click.echo(visible(note), err=True)
    ctx.exit(1 if as_code and not found.is_empty else 0)


def _compare(words: tuple[str, ...]) -> Difference:
    if len(words) == 2 and all(map(is_workspace, words)):
        return find(words[0]).diff(find(words[1]))
    place, positions = split(words, 2)
    if not positions:
        raise click.UsageError("name a record to compare with, or another run")
    return place.diff(*positions)


def _told(found: Difference, width: int) -> Iterator[str]:
    old, new = found.old, found.new
    names = [f"record {side.seq:,}" for side in (old, new)]
    if old.url != new.url:
        names = [f"{side.url} at {name}" for side, name in zip((old, new), names, strict=True)]
        yield history.line(f"- {names[0]}", width, bold=True)
        yield history.line(f"+ {names[1]}", width, bold=True)
    else:
        yield history.line(" -> ".join(names), width, bold=True)
    if old.status != new.status:
        yield f"status  {old.status} -> {new.status}"
    if old.result != new.result:
        yield history.line(f"result  {history.short(old.result)} -> {history.short(new.result)}", width)
    for agent, changes in _by_agent(found.data):
        yield from _part(f"{folder_of_agent(agent)}state.json", changes, history.data_change, width)
    for plan in found.plans:
        yield from _part(f"{folder_of_agent(plan.agent)}todo.md", plan.lines, history.plan_line, width)
    for agent, said in _by_agent(found.messages):
        yield from _part(f"{folder_of_agent(agent)}messages.jsonl", said, history.message_change, width)
    yield from _part("steps and effects", found.calls, history.call_change, width)
    if found.is_empty:
        yield "no difference"


def _by_agent(changes: Sequence[Any]) -> Iterable[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for change in changes:
        found.setdefault(change.agent, []).append(change)
    return found.items()


def _part(title: str, changes: Sequence[T], tell: Callable[[T, int], str], width: int) -> Iterator[str]:
    if not changes:
        return
    yield ""
    yield history.line(title, width, bold=True)
    for change in changes[:_SHOWN]:
        yield tell(change, width)
    if len(changes) > _SHOWN:
        yield f"  and {len(changes) - _SHOWN:,} more: --json shows all"
