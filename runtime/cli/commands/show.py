"""`satchel show`: the run as it was at one of its records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from ....workspace.base import UsageError, counted
from ....workspace.state import folder_of_agent
from ...control import Handle, Row, Shown
from ..options.place import json_option
from ..options.position import complete_position, split
from ..options.storage import storage_option
from ..render import history
from ..render.output import columns, print_json
from ..render.words import visible

_PROMPT = "prompt:"
_NEWEST = 10  # messages of each agent

_EXAMPLES = """\b
Examples:
  satchel show my-digest 42        right after record 42 of `satchel log`
  satchel show my-digest ^3        before item 3 began
  satchel show my-digest prompt:summary@4f5a11c0be27
  satchel show my-digest --json | jq '.agents[""].data'
"""


@click.command("show", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [AT]", shell_complete=complete_position)
@json_option
@storage_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """Show the state, the plan and the newest messages of all agents as they were at a record.

    AT is the number of a record, `latest` (the default), an item (^3 or 3-title: before it began, the last time), or
    the name of a checkpoint. With prompt:NAME@VERSION, show the text of a prompt in a version that `satchel steps`
    names.
    """
    place, at = split(words, 1)
    if at and at[0].startswith(_PROMPT):
        _print_prompt(place, at[0].removeprefix(_PROMPT), as_json)
        return
    shown = place.show(*at)
    if as_json:
        print_json(_as_json(shown))
        return
    for line in _told(shown, columns(sys.stdout)):
        click.echo(line)
    if shown.problem:
        click.echo(visible(f"note: {shown.problem}"), err=True)


def _print_prompt(place: Handle, named: str, as_json: bool) -> None:
    name, _, version = named.rpartition("@")
    if not name:
        raise UsageError(
            f"no version of the prompt {version!r} is named",
            remedy=f"write {_PROMPT}{version}@VERSION; `satchel steps` shows which versions were used",
        )
    text = place.prompt(name, version)
    if as_json:
        print_json({"name": name, "version": version, "text": text})
    else:
        click.echo("\n".join(map(visible, text.removesuffix("\n").split("\n"))))


def _as_json(shown: Shown) -> dict[str, Any]:
    records = {name: _record(row) for name, row in _rows(shown).items()}
    agents = {
        each.path: {
            "status": each.status,
            "open": each.open,
            "data": each.data,
            "plan": each.plan,
            "messages": each.messages,
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


def _record(row: Row | None) -> dict[str, Any] | None:
    return row.record if row else None


def _rows(shown: Shown) -> dict[str, Row | None]:
    return {"before": shown.before, "record": shown.record, "after": shown.after}


def _told(shown: Shown, width: int) -> Iterator[str]:
    reason = f": {shown.moment.reason}" if shown.moment.reason else ""
    yield history.line(f"record {shown.seq:,} of {shown.newest:,}: {shown.status}{reason}", width, bold=True)
    if shown.record is None:
        yield f"  the record itself is not kept; this is the checkpoint of record {shown.seq:,}"
    for name, row in _rows(shown).items():
        if row is not None:
            yield history.record(row.line, width, is_dim=name != "record")
    for agent in shown.agents:
        folder = folder_of_agent(agent.path)
        yield ""
        named = f" ({agent.status}; open: {', '.join(agent.open) or 'nothing'})" if folder else ""
        yield history.line(f"{folder}todo.md{named}", width, bold=True)
        yield from history.text(agent.plan, width)
        yield ""
        yield history.line(f"{folder}state.json", width, bold=True)
        yield from history.value(agent.data, width)
        if agent.messages:
            yield ""
            yield history.line(f"{folder}messages.jsonl ({counted(len(agent.messages), 'message')})", width, bold=True)
            for said in agent.messages[-_NEWEST:]:
                yield history.message(said["seq"], said, width)
