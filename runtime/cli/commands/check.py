"""`satchel check`: is this workspace sound, and what would an opening do to it?"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
from msgspec.structs import asdict

from ....workspace.base import UsageError
from ....workspace.inspect import discovery
from ....workspace.store import Abilities
from ...control import Checked, Handle, Tried
from ...limits import TriedNotice
from ..options.place import find, json_option, workspace_argument
from ..render import abilities, asked, exposure
from ..render.output import columns, fold, print_json, progressing
from ..render.words import counted, visible

_WORTH_A_BAR = 4000  # records

_EXAMPLES = """\b
Examples:
  satchel check my-digest
  satchel check --json my-digest | jq '.problems[].file'
  satchel check --storage s3://my-bucket/runs
  satchel check --notify my-digest
"""


@click.command("check", epilog=_EXAMPLES)
@workspace_argument
@click.option(
    "--storage",
    "only_storage",
    is_flag=True,
    help="Only show what the storage can do; needs no workspace. Tests it with a small file, and removes it.",
)
@click.option("--notify", "only_notices", is_flag=True, help="Only send a test notice to each address of `notify:`.")
@json_option
@click.pass_context
def command(ctx: click.Context, workspace: str | None, only_storage: bool, only_notices: bool, as_json: bool) -> None:
    """Check every file of a workspace. Show what the next start would change, and what the storage guarantees. Runs no
    code, and changes nothing.

    Exit code 0 if nothing is wrong and the run can continue, else 2.
    """
    if only_storage and only_notices:
        raise UsageError("--storage and --notify are two checks", remedy="ask for one after the other")
    place = find(workspace or "." if only_storage else workspace)
    if only_notices:
        ctx.exit(_tell_notices(place.try_notices(), as_json))
    if only_storage:
        _tell_storage(place.try_storage(), as_json)
        return
    with progressing("reading the journal", _WORTH_A_BAR) as progress:
        checked = place.check(progress=progress)
    if as_json:
        print_json(_json(checked))
    else:
        for line in _lines(place, checked, columns(sys.stdout)):
            click.echo(line)
    ctx.exit(2 if checked.problems else 0)


def _tell_notices(tried: list[TriedNotice], as_json: bool) -> int:
    if as_json:
        print_json([asdict(each) for each in tried])
    elif not tried:
        click.echo("`notify:` of workspace.yaml names no address")
    for each in () if as_json else tried:
        title, colour = ("lost", "red") if each.problem else ("sent", "green")
        said = f"{each.place}: {each.problem}" if each.problem else each.place
        for line in _titled(title, colour, visible(said), columns(sys.stdout)):
            click.echo(line)
    return 2 if any(each.problem for each in tried) else 0


def _tell_storage(found: Tried, as_json: bool) -> None:
    width = columns(sys.stdout)
    if as_json:
        print_json(
            {
                "url": found.url,
                "tried": found.tried,
                "abilities": abilities.as_json(found.abilities),
                "exposure": exposure.as_json(found.exposure),
            }
        )
        return
    for line in _storage(found.abilities, width):
        click.echo(line)
    for is_bad, said in exposure.in_words(found.exposure, on_disk=not found.abilities.remote):
        title, colour = ("warning", "red") if is_bad else ("storage", "cyan")
        for line in _titled(title, colour, visible(said), width):
            click.echo(line)
    results = {
        "lock": "a test lock worked",
        "conditional writes": "a test showed that conditional writes keep other writers out",
        "exclusive creation": "a test showed that of two who create a file only one succeeds",
        "writes": "a test wrote a file and read it",
    }
    for line in _titled("note", "cyan", results[found.tried], width):
        click.echo(line)


def _lines(place: Handle, checked: Checked, width: int) -> Iterator[str]:
    for problem in checked.problems:
        yield from _titled("wrong", "red", str(problem), width)
    for plan in () if checked.is_running else checked.planned:
        yield from _titled("note", "cyan", visible(plan), width)
    moment = checked.moment
    if checked.same_run_id and moment is not None:
        same = discovery.describe_duplicates(moment.run_id, [checked.url, *checked.same_run_id])
        yield from _titled("note", "cyan", visible(same), width)
    for question in asked.as_words(checked.questions, place):
        yield from fold(question, width)
    if checked.is_running:
        process = "a process is running this workspace" + (
            ", so some of these problems may only be files that were changing: check again when the run has stopped"
            if checked.problems
            else ""
        )
        yield from _titled("note", "cyan", process, width)
    if checked.problems:
        yield f"{counted(len(checked.problems), 'problem')} in {visible(checked.url)}"
    elif moment is not None:
        records = counted(moment.seq, "record")
        status = "interrupted" if moment.is_interrupted and not checked.is_running else moment.status
        yield f"{click.style('no problems', fg='green', bold=True)}: {moment.run_id}, {records}, {status}"
    yield from _storage(checked.abilities, width, locks_fail=checked.locks_fail)


def _storage(can: Abilities, width: int, *, locks_fail: bool = False) -> Iterator[str]:
    for ability in abilities.in_words(can, locks_fail=locks_fail):
        yield from _titled("storage", "cyan", ability, width)


def _titled(title: str, colour: str, text: str, width: int) -> Iterator[str]:
    first, *more = fold(text, width, 8)
    yield click.style(f"{title:<8}", fg=colour) + first
    yield from (f"        {line}" for line in more)


def _json(checked: Checked) -> dict[str, object]:
    return {
        "url": checked.url,
        "ok": checked.ok,
        "problems": [asdict(problem) for problem in checked.problems],
        "planned": checked.planned,
        "same_run_id": checked.same_run_id,
        "questions": asked.as_json(checked.questions),
        "abilities": abilities.as_json(checked.abilities, locks_fail=checked.locks_fail),
    }
