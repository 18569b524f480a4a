"""`satchel steps`: what each item of a run has done."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from ....workspace.history import Call, Work
from ..options.place import json_option
from ..options.position import complete_moment, complete_position, split
from ..options.storage import storage_option
from ..render import history
from ..render.output import columns, print_json
from ..render.words import counted, duration, one_line, visible

_EXAMPLES = """\b
Examples:
  satchel steps my-digest
  satchel steps my-digest 3            item 3, as are ^3 and 3-title
  satchel steps my-digest 3 --json     with whole results
"""

_STATES = {
    "open": ("open", "yellow"),
    "committed": ("committed", "green"),
    "skipped": ("skipped", None),
    "dropped": ("dropped by a person", None),
    "undone": ("undone", "magenta"),
    "pruned": ("records gone", None),
}


@click.command("steps", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [ITEM]", shell_complete=complete_position)
@click.option(
    "--at", metavar="AT", shell_complete=complete_moment, help="As it was at this record, named as in `satchel show`."
)
@json_option
@storage_option
def command(words: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Show what the items have done, finished or open: steps and effects with results, times and failed attempts."""
    place, item = split(words, 1)
    found = place.steps(*item, at=at)
    if as_json:
        print_json(history.work_as_json(found))
    else:
        width = columns(sys.stdout)
        for work in found.work:
            click.echo("\n".join(_told(work, width)))  # each echo costs as much as a line
        if not found.work:
            click.echo("no step is on record")
    if found.since > 1 and not as_json:
        click.echo(
            f"note: there are no records before {found.since:,}, and of items that had ended by then only effects",
            err=True,
        )
    if found.problem and not as_json:
        click.echo(visible(f"note: {found.problem}"), err=True)


def _told(work: Work, width: int) -> Iterator[str]:
    state, colour = _STATES[work.state]
    records = f"records {work.begun:,} to {work.ended:,}" if work.begun and work.ended else ""
    records = records or (f"since record {work.begun:,}" if work.begun else "")
    failures = f"failed {counted(work.failures, 'time')}" if work.failures else ""
    facts = (state, counted(len(work.calls), "call"), f"{work.ms:,} ms", failures, records)
    said = ", ".join(filter(None, facts if work.scope or work.state == "undone" else facts[1:3]))
    title = f"  {one_line(work.title)}" if work.title else ""
    yield history.line(f"{history.scope_of(work.agent, work.scope)}{title}  ({said})", width, fg=colour, bold=True)
    for call in work.calls:
        yield from _call(call, width)


def _call(call: Call, width: int) -> Iterator[str]:
    took = f"{call.ms:,} ms" if call.ms else ""
    head = f"{call.no:>4}  {'effect' if call.effect else 'step'}  {took:>8}  {history.called(call, width)}"
    colour = {"failed": "red", "retrying": "yellow", "in_doubt": "yellow", "asked": "yellow"}.get(call.state)
    yield history.line(f"{head} -> {history.outcome(call, width)}", width, fg=colour)
    for trouble in call.troubles:
        again = f", again after {duration(trouble.wait)}" if trouble.wait is not None else ""
        yield history.line(f"{'':6}attempt {trouble.attempt} failed{again}: {trouble.error}", width, fg="red")
    more = [f"model {call.model}"] * bool(call.model)
    more += [f"prompt {name}@{version}" for name, version in call.prompts.items()]
    if more:
        yield history.line(f"{'':6}{', '.join(more)}", width, dim=True)
