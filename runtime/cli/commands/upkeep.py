"""`satchel check`, `recover` and `prune`: whether a workspace is sound, its repair, and what keep: lets go."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from ....workspace.base import UsageError, visible
from ....workspace.inspect import discovery
from ....workspace.store import Abilities, Exposure
from ...api import forgotten
from ...present import counted
from .. import summary
from ..options import (
    adopt_option,
    confirm_adoption,
    confirm_take_over,
    find,
    json_option,
    take_over_option,
    workspace_argument,
    yes_option,
)
from ..output import columns, fold, print_json, print_lines, print_remarks, progressing

if TYPE_CHECKING:
    from ....workspace.lifecycle import Truncation
    from ...api import CheckResult, Handle, StorageCheck
    from ...live import NoticeCheck


def abilities_as_json(can: Abilities, *, locks_fail: bool = False) -> dict[str, Any]:
    stated = can._replace(lock=False) if locks_fail else can
    return {**stated._asdict(), "in_words": list(abilities_in_words(can, locks_fail=locks_fail))}


def abilities_in_words(can: Abilities, *, locks_fail: bool = False) -> Iterator[str]:
    """One line each. `locks_fail`: the storage refused a lock."""
    if locks_fail:
        yield "one writer: not guaranteed, because files can't be locked there; no run starts"
    elif can.lock:
        yield "one writer: guaranteed by a lock of the file system"
    elif can.exclusive_create and can.conditional_replace:
        yield "one writer: guaranteed by conditional writes"
    elif can.exclusive_create:
        yield "one writer: guaranteed by files that only one can create; the heartbeat is advisory"
    else:
        yield "one writer: advisory: if two processes create a file at once, neither notices; let only one run it"
    if can.conditional_replace:
        yield "edits: a file that you save is never overwritten"
    else:
        yield "edits: if you save a file at the moment when the run writes it, your edit may be lost"
    yield "journal: one file grows" if can.append else "journal: one object for each group of records"
    yield "changes: noticed at once" if can.notice else "changes: noticed every few seconds"


_NOT_TOLD = "not told by the server"


def exposure_in_words(found: Exposure, *, on_disk: bool) -> Iterator[tuple[bool, str]]:
    """Lines, and whether each says that something is wrong."""
    if on_disk:
        yield False, f"others: {_others(found)}"
        return
    encrypted = f"yes ({found.encrypted})" if found.encrypted else _NOT_TOLD if found.encrypted is None else "no"
    yield False, f"encrypted at rest: {encrypted}"
    yield bool(found.public), "public: " + _told_to(found.public, "yes, strangers can read or change it", "no")
    yield False, "old versions: " + _told_to(found.versioned, "kept", "not kept")
    if found.removing:
        yield True, f"lifecycle: the rule {', '.join(found.removing)} here, and a run that lacks one can't resume"
    else:
        yield (
            False,
            "lifecycle: " + _told_to(None if found.removing is None else True, "no rule removes objects here", ""),
        )


def _told_to(value: bool | None, yes: str, no: str) -> str:
    return _NOT_TOLD if value is None else yes if value else no


def _others(found: Exposure) -> str:
    if found.public:
        return "all users of this machine can look into the folder; the files that Satchel makes are closed to them"
    if found.group:
        return "the group of the folder can look into it"
    return "only its owner can look into the folder"


_WORTH_A_BAR = 4000  # records

_CHECK_EXAMPLES = """\b
Examples:
  satchel check my-digest
  satchel check --json my-digest | jq '.problems[].file'
  satchel check --storage s3://my-bucket/runs
  satchel check --notify my-digest
"""


@click.command("check", epilog=_CHECK_EXAMPLES)
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
def check_command(
    ctx: click.Context, workspace: str | None, only_storage: bool, only_notices: bool, as_json: bool
) -> None:
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
        print_json(_check_as_json(checked))
    else:
        print_lines(_check_lines(place, checked, columns(sys.stdout)))
    ctx.exit(2 if checked.problems else 0)


def _tell_notices(tried: list[NoticeCheck], as_json: bool) -> int:
    if as_json:
        print_json([asdict(each) for each in tried])
    elif not tried:
        click.echo("`notify:` of workspace.yaml names no address")
    for each in () if as_json else tried:
        title, colour = ("lost", "red") if each.problem else ("sent", "green")
        said = f"{each.place}: {each.problem}" if each.problem else each.place
        print_lines(_titled(title, colour, visible(said), columns(sys.stdout)))
    return 2 if any(each.problem for each in tried) else 0


def _tell_storage(found: StorageCheck, as_json: bool) -> None:
    width = columns(sys.stdout)
    if as_json:
        print_json(
            {
                "url": found.url,
                "tried": found.tried,
                "abilities": abilities_as_json(found.abilities),
                "exposure": found.exposure._asdict(),
            }
        )
        return
    print_lines(_storage(found.abilities, width))
    for is_bad, said in exposure_in_words(found.exposure, on_disk=not found.abilities.remote):
        title, colour = ("warning", "red") if is_bad else ("storage", "cyan")
        print_lines(_titled(title, colour, visible(said), width))
    results = {
        "lock": "a test lock worked",
        "conditional writes": "a test showed that conditional writes keep other writers out",
        "exclusive creation": "a test showed that of two who create a file only one succeeds",
        "writes": "a test wrote a file and read it",
    }
    print_lines(_titled("note", "cyan", results[found.tried], width))


def _check_lines(place: Handle, checked: CheckResult, width: int) -> Iterator[str]:
    for problem in checked.problems:
        yield from _titled("wrong", "red", str(problem), width)
    for plan in () if checked.is_running else checked.planned:
        yield from _titled("note", "cyan", visible(plan), width)
    moment = checked.moment
    if checked.same_run_id and moment is not None:
        same = discovery.describe_duplicates(moment.run_id, [checked.url, *checked.same_run_id])
        yield from _titled("note", "cyan", visible(same), width)
    yield from summary.question_lines(checked.questions, place, width)
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
    for ability in abilities_in_words(can, locks_fail=locks_fail):
        yield from _titled("storage", "cyan", ability, width)


def _titled(title: str, colour: str, text: str, width: int) -> Iterator[str]:
    first, *more = fold(text, width, 8)
    yield click.style(f"{title:<8}", fg=colour) + first
    yield from (f"        {line}" for line in more)


def _check_as_json(checked: CheckResult) -> dict[str, object]:
    return {
        "url": checked.url,
        "ok": checked.ok,
        "problems": [asdict(problem) for problem in checked.problems],
        "planned": checked.planned,
        "same_run_id": checked.same_run_id,
        "questions": summary.questions_json(checked.questions),
        "abilities": abilities_as_json(checked.abilities, locks_fail=checked.locks_fail),
    }


_RECOVER_EXAMPLES = """\b
Examples:
  satchel recover my-digest     before you look at its files after a crash
  satchel recover my-digest --truncate-at 41
                                if record 42 or a later one is damaged
"""


@click.command("recover", epilog=_RECOVER_EXAMPLES)
@workspace_argument
@take_over_option
@adopt_option
@click.option(
    "--truncate-at",
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="Cut the journal off after record SEQ, if it is damaged there. Asks first, and keeps what it cuts off.",
)
@yes_option
@json_option
def recover_command(
    workspace: str | None, as_json: bool, take_over: bool, adopt: bool, truncate_at: int | None, yes: bool
) -> None:
    """Repair the files of a workspace and rescue half-finished output, without running the agent.

    `run` and `resume` do the same by themselves. Use this to look at the files first. If the journal is damaged and you
    have no backup, `--truncate-at SEQ` goes back to record SEQ and forgets all later records. Tasks that the run took
    after that record come back into inbox/.
    """
    place = find(workspace)
    if adopt:
        confirm_adoption(place, asks=not (yes or as_json))
    if take_over:
        confirm_take_over(place)
    cut = _confirmed(place.plan_cut(truncate_at), asks=not (yes or as_json)) if truncate_at is not None else None
    found = place.recover(truncate_at=cut, take_over=take_over, adopt=adopt)
    if as_json:
        print_json(
            {
                "status": found.status,
                "exit_code": 0,
                "run_id": found.run_id,
                "url": found.url,
                "has_begun": found.has_begun,
                "questions": summary.questions_json(found.questions),
                "report": summary.report_json(found.report),
            }
        )
        return
    print_remarks(found.report)
    summary.print_questions(found.questions, place)
    if found.has_begun and found.status != "completed":
        summary.print_next(place)


def _confirmed(cut: Truncation, *, asks: bool) -> Truncation:
    """Cut the journal only if the person confirms it."""
    if asks:
        click.echo(visible(f"{counted(cut.records, 'record')} after record {cut.seq} will be cut off."), err=True)
        if said := forgotten(cut):
            click.echo(visible(f"{said[0].upper()}{said[1:]}."), err=True)
        click.confirm("Cut them off?", abort=True, err=True)
    return cut


_PRUNE_EXAMPLES = """\b
Examples:
  satchel prune my-digest --dry-run    show what may go
  satchel prune my-digest              remove it now
"""


@click.command("prune", epilog=_PRUNE_EXAMPLES)
@workspace_argument
@click.option("--dry-run", is_flag=True, help="Only show what would go. Also works while the run is active.")
@take_over_option
@adopt_option
@json_option
def prune_command(workspace: str | None, as_json: bool, dry_run: bool, take_over: bool, adopt: bool) -> None:
    """Remove what the rules of `keep:` in workspace.yaml no longer keep.

    An active run does this by itself. Effects, questions, answers, edits and the conversation always stay, and so does
    what the run needs to resume.
    """
    place = find(workspace)
    if adopt:
        confirm_adoption(place)
    if take_over and not dry_run:
        confirm_take_over(place)
    done = place.prune(dry_run=dry_run, take_over=take_over, adopt=adopt)
    if as_json:
        print_json(asdict(done))
        return
    verb = "would remove" if dry_run else "removed"
    for folder, number in done.files.items():
        click.echo(visible(f"{verb} {counted(number, 'file')} in {folder}"))
    if not done.files:
        click.echo("there is nothing to remove")
    else:
        click.echo(f"{done.bytes:,} bytes in all")
    if done.kept_from > 1:
        click.echo(f"the journal is kept from record {done.kept_from:,} on")
