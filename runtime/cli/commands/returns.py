"""`satchel rewind`, `redo` and `fork`: go on from an earlier moment, with or without the effects done since then."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from ....workspace.base import UsageError, visible
from ....workspace.state import LaterEffect
from ....workspace.transfer import ForkResult
from ...api import RewindResult, effects_since
from ...present import counted, since
from .. import summary
from ..options import (
    by_option,
    complete_folders,
    complete_item,
    complete_moment,
    find,
    find_both,
    json_option,
    storage_option,
    workspace_argument,
    yes_option,
)
from ..output import print_folded, print_json, print_lines, print_remarks, transferring

REUSE = "Equal calls of later steps return their results, so only what depends on a change is done again."


def effect_lines(effects: tuple[LaterEffect, ...], *, forgotten: bool) -> list[str]:
    """A line for each effect. If there is none to forget, that is said: a return to an item goes to before it began for
    the last time."""
    lines = [] if effects or not forgotten else ["  no effect was done since then, so none is done again"]
    for each in effects:
        at = f" of {since(each.at)}" if each.at else ""
        kept = "stays done, if an item of this name comes again" if each.is_gone else "stays done"
        how = "in doubt" if each.is_in_doubt else "done again" if forgotten else kept
        where = f" in {each.title!r}" if each.title else ""
        lines.append(visible(f"  effect {each.call}{at}{where}: {how}"))
    return lines


def confirm_again(effects: tuple[LaterEffect, ...], *, can_ask: bool) -> None:
    """Ask whether these effects may be done again. UsageError where no person can answer."""
    due = [each for each in effects if not each.is_in_doubt]
    if not due:
        return
    if not (can_ask and sys.stdin.isatty()):
        raise UsageError(
            f"{counted(len(due), 'effect')} would be done again",
            why=", ".join(visible(each.call) for each in due[:9]),
            remedy="confirm it with --yes",
        )
    print_lines(effect_lines(tuple(due), forgotten=True), err=True)
    click.confirm(f"Do {counted(len(due), 'effect')} again?", abort=True, err=True)


_REWIND_EXAMPLES = """\b
Examples:
  satchel rewind my-digest --to ^3 --dry-run   show what it would do
  satchel rewind my-digest --to ^3             return to before item 3
  satchel rewind my-digest --to 41 --forget    do later effects again
"""


@click.command("rewind", epilog=_REWIND_EXAMPLES)
@workspace_argument
@click.option(
    "--to",
    required=True,
    metavar="SEQ|ITEM|CHECKPOINT",
    shell_complete=complete_moment,
    help="A record's number, an item such as ^3 (its beginning), or a file in checkpoints/.",
)
@click.option("--forget", is_flag=True, help="Do effects since then again, under a new idempotency key. Asks first.")
@click.option("--reuse", is_flag=True, help=REUSE)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@by_option
@yes_option
@json_option
def rewind_command(
    workspace: str | None, to: str, forget: bool, reuse: bool, dry_run: bool, by: str | None, yes: bool, as_json: bool
) -> None:
    """Return a run to an earlier record.

    Data, plan and the results of steps are those of that record, and what came after it is done again. Nothing is
    deleted: the return is one more record, and another rewind can undo it. Effects since then stay done: an equal call
    returns its recorded result, and an unequal one is asked about. With --forget they are done again.
    """
    place = find(workspace)
    if forget and not dry_run and not yes:
        planned = place.history.rewind(to=to, forget=True, dry_run=True, by=by)
        confirm_again(planned.effects, can_ask=not as_json)
    found = place.history.rewind(to=to, forget=forget, reuse=reuse, dry_run=dry_run, by=by)
    if as_json:
        print_json(
            {
                "to": found.to,
                "is_done": found.is_done,
                "says": found.says,
                "effects": msgspec.to_builtins(found.effects),
                "forgotten": found.forgotten,
                "status": found.status,
                "run_id": found.run_id,
                "url": found.url,
                "questions": summary.questions_json(found.questions),
                "report": summary.report_json(found.report),
            }
        )
        return
    _show_rewinding(found)
    if found.is_done:
        summary.print_questions(found.questions, place)
        click.echo(f"next: {place.command('resume')}", err=True)


def _show_rewinding(found: RewindResult) -> None:
    print_remarks(found.report[1:])
    click.echo(f"{'returned' if found.is_done else 'would return'} to record {found.to:,}")
    for say in found.says:
        print_folded(f"  {say}", 4)
    for line in effect_lines(found.effects, forgotten=found.forgotten):
        print_folded(line, 4)


_REDO_EXAMPLES = """\b
Examples:
  satchel redo my-digest ^3             do item 3 again
  satchel redo my-digest ^3 --effects   with its effects
"""


@click.command("redo", epilog=_REDO_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("item", metavar="ITEM", shell_complete=complete_item)
@click.option("--effects", is_flag=True, help="Do its effects again, under a new idempotency key. Asks first.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@by_option
@yes_option
@json_option
@storage_option
def redo_command(
    workspace: str, item: str, effects: bool, dry_run: bool, by: str | None, yes: bool, as_json: bool
) -> None:
    """Do an item again from its beginning, finished or open, with the state as it is now.

    ITEM is its id, such as ^3. An equal call of an effect returns its recorded result. With --effects it is done again.
    """
    place = find(workspace)
    if effects and not dry_run and not yes:
        confirm_again(place.history.redo(item, effects=True, dry_run=True).effects, can_ask=not as_json)
    found = place.history.redo(item, effects=effects, dry_run=dry_run, by=by)
    if as_json:
        result: dict[str, Any] = {
            **msgspec.to_builtins(found),
            "is_done": not dry_run,
            "exit_code": 0,
            "report": summary.report_json(found.report),
        }
        print_json(result)
        return
    print_remarks(found.report[1:])
    verb = "would" if dry_run else "will"
    click.echo(visible(f"item {found.item} ({found.title!r}) {verb} be done again"))
    for say in found.says:
        print_folded(say, 2)
    for line in effect_lines(found.effects, forgotten=found.forgotten):
        print_folded(line, 4)
    if not dry_run:
        click.echo(f"next: {place.command('resume')}", err=True)


_FORK_EXAMPLES = """\b
Examples:
  satchel fork my-digest ../second --at ^3   a new run from before item 3
  satchel fork my-digest s3://bucket/second  a new run from now on
"""


@click.command("fork", epilog=_FORK_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("to", metavar="DST", shell_complete=complete_folders)
@click.option(
    "--at",
    metavar="SEQ|ITEM|CHECKPOINT",
    shell_complete=complete_moment,
    help="A record's number, an item such as ^3 (its beginning), or a file in checkpoints/. [default: now]",
)
@click.option("--run-id", default="", metavar="ID", help="Name of the new run. [default: made from the old one]")
@click.option("--effects", is_flag=True, help="Do effects since then again in the new run. Asks first.")
@click.option("--reuse", is_flag=True, help=REUSE)
@by_option
@yes_option
@json_option
@storage_option
def fork_command(
    workspace: str,
    to: str,
    at: str | None,
    run_id: str,
    effects: bool,
    reuse: bool,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Start a new run in DST from an earlier moment of the run in WS: folders and URLs, in any combination.

    WS is only read, also while it runs. The new run has its own name. Effects that WS has done since that moment are
    known to the new run: an equal call returns their recorded result, and an unequal one is asked about. With --effects
    they are done again there.
    """
    place, storage_options = find_both(workspace, to)
    if effects and not yes:
        confirm_again(effects_since(place, at), can_ask=not as_json)
    with transferring() as tell:
        found = place.history.fork(
            to,
            at=at,
            run_id=run_id,
            effects=effects,
            reuse=reuse,
            by=by,
            progress=tell,
            storage_options=storage_options,
        )
    if as_json:
        result: dict[str, Any] = {**msgspec.to_builtins(found), "exit_code": 0}
        print_json(result)
        return
    for line in _fork_lines(found):
        print_folded(line, 4)
    verb = "status" if place.status(brief=True).state == "held" else "resume"
    click.echo(visible(f"next: {shlex.join(['satchel', verb, to])}"), err=True)


def _fork_lines(found: ForkResult) -> Iterator[str]:
    if found.was_done:
        yield visible(f"{found.run_id} was forked from record {found.seq:,} of {found.source} already; it is complete")
        return
    yield visible(f"forked {found.run_id} from record {found.seq:,} of {found.source}")
    yield f"  {counted(found.files, 'file')} copied"
    yield from effect_lines(found.effects, forgotten=found.forgotten)
    for path in found.left_out:
        yield visible(f"  not copied, because it has changed since: {path}")
