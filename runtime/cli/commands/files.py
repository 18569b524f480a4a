"""`satchel check`, `recover`, `prune`, `copy`, `move`, `export`, `replicate` and `restore`: whether the files of a run
are sound, their repair, what `keep:` lets go, and their way to another place, into a zip file or to a backup."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import asdict

from ....workspace.base import DEFINITION, UsageError, urls, visible
from ....workspace.inspect import discovery
from ....workspace.store import Abilities, Exposure
from ...api import forgotten
from ...present import counted, one_line, size
from ...status import use_options
from .. import summary
from ..options import (
    adopt_option,
    complete_folders,
    confirm_adoption,
    confirm_take_over,
    find,
    find_both,
    given,
    json_option,
    storage_option,
    take_over_option,
    together,
    workspace_argument,
    yes_option,
)
from ..output import columns, fold, print_folded, print_json, print_lines, print_remarks, progressing, transferring

if TYPE_CHECKING:
    from ....workspace.inspect import Kind
    from ....workspace.lifecycle import Truncation
    from ....workspace.transfer import TransferResult
    from ...api import BackupEvent, CheckResult, Handle, StorageCheck
    from ...live import NoticeCheck


def _abilities_json(can: Abilities, *, locks_fail: bool = False) -> dict[str, Any]:
    stated = can._replace(lock=False) if locks_fail else can
    return {**stated._asdict(), "in_words": list(_ability_lines(can, locks_fail=locks_fail))}


def _ability_lines(can: Abilities, *, locks_fail: bool = False) -> Iterator[str]:
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


def _exposure_lines(found: Exposure, *, on_disk: bool) -> Iterator[tuple[bool, str]]:
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
        yield False, f"lifecycle: {_NOT_TOLD if found.removing is None else 'no rule removes objects here'}"


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
                "abilities": _abilities_json(found.abilities),
                "exposure": found.exposure._asdict(),
            }
        )
        return
    print_lines(_storage(found.abilities, width))
    for is_bad, said in _exposure_lines(found.exposure, on_disk=not found.abilities.remote):
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
    for ability in _ability_lines(can, locks_fail=locks_fail):
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
        "abilities": _abilities_json(checked.abilities, locks_fail=checked.locks_fail),
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


_VERBS = {"copy": "copied", "move": "moved"}

_from_and_to = together(
    click.argument("source", metavar="SRC", shell_complete=complete_folders),
    click.argument("to", metavar="DST", shell_complete=complete_folders),
    json_option,
    storage_option,
)


def _carry(kind: Kind, source: str, to: str, *, as_json: bool) -> None:
    """Copy or move the workspace at `source`, and print the result."""
    here, storage_options = find_both(source, to)
    with transferring() as tell:
        do = here.copy if kind == "copy" else here.move
        result = do(to, progress=tell, storage_options=storage_options)
    if as_json:
        print_json(_transfer_json(result))
        return
    for line in _transfer_lines(result):
        print_folded(line)
    click.echo(visible(f"next: {shlex.join(['satchel', 'status', to])}"), err=True)


def _transfer_lines(result: TransferResult) -> Iterator[str]:
    if result.was_done:
        yield f"{result.run_id} was {_VERBS[result.kind]} to {result.to} already; there is nothing to do"
        return
    yield f"{_VERBS[result.kind]} {result.run_id} from {result.source} to {result.to}"
    if result.files:
        there = result.files - result.copied
        before = f", {counted(there, 'file')} of them in an earlier attempt" if there else ""
        yield f"  {counted(result.files, 'file')}, {size(result.bytes)}, each compared by its hash{before}"
    else:
        yield "  it had arrived already; the rest was removed here"
    for note in result.notes:
        yield f"  {note}"
    for path in result.left:
        yield f"  not moved, because it was changed or added during the move: {path}"
    if result.kind == "copy":
        yield "  there are two copies of this run now; while the other one exists, the new one asks before it continues"


def _transfer_json(result: TransferResult) -> dict[str, object]:
    return {"exit_code": 0, **{name: each for name, each in asdict(result).items() if name != "seq"}}


_COPY_EXAMPLES = """\b
Examples:
  satchel copy my-digest ~/backup/my-digest
  satchel copy s3://bucket/runs/digest ./to-look-at
"""


@click.command("copy", epilog=_COPY_EXAMPLES)
@_from_and_to
def copy_command(source: str, to: str, as_json: bool) -> None:
    """Copy the workspace SRC to DST: folders and URLs, in any combination. DST must be empty or must not exist.

    Compares every file by its hash. An unfinished copy is not a workspace. If the copy is interrupted, the same command
    continues it. A running workspace is refused (exit code 6). Two copies of one run would both act, so the first start
    of the copy asks for --adopt while the original exists.
    """
    _carry("copy", source, to, as_json=as_json)


_MOVE_EXAMPLES = """\b
Examples:
  satchel pause --wait my-digest
  satchel move my-digest s3://bucket/runs/digest
  satchel move s3://bucket/runs/digest ./my-digest
"""


@click.command("move", epilog=_MOVE_EXAMPLES)
@_from_and_to
def move_command(source: str, to: str, as_json: bool) -> None:
    """Move the workspace SRC to DST: folders and URLs, in any combination. DST must be empty or must not exist.

    Compares every file by its hash before it removes anything. The two places are never both a workspace. If the move
    is interrupted, the same command continues it. A file moved.yaml stays at SRC and says where the run is. A running
    workspace is refused (exit code 6).
    """
    _carry("move", source, to, as_json=as_json)


_EXPORT_EXAMPLES = """\b
Examples:
  satchel export my-digest digest.zip
  satchel export s3://bucket/runs/digest digest.zip
"""


@click.command("export", epilog=_EXPORT_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("to", metavar="FILE.zip", type=click.Path())
@json_option
@storage_option
def export_command(workspace: str, to: str, as_json: bool) -> None:
    """Write the workspace WS into the zip file FILE.zip, for other people to read.

    The zip has the readable files, the journal and the checkpoints as of one record, also while the run is active, and
    no locks, logs and temporary files. `redact:` of workspace.yaml is applied to all of it. export.json in it says what
    was redacted and left out. An existing file is never overwritten.
    """
    with transferring() as tell:
        done = find(workspace).files.export(to, progress=tell)
    if as_json:
        print_json({"exit_code": 0, "file": to, **msgspec.to_builtins(done)})
        return
    lines = [f"exported {done.run_id} as of record {done.seq:,} to {to}", f"  {counted(done.files, 'file')}"]
    lines += [f"  redacted: {path}" for path in done.redacted]
    lines += [f"  left out: {said}" for said in done.left_out]
    lines += [f"  not redacted: the value of {name}, which is not set here" for name in done.not_set]
    for line in lines:
        print_folded(line)
    click.echo(
        visible(f"to read it: unzip {shlex.quote(to)}, then `satchel status {shlex.quote(done.run_id)}`"), err=True
    )


_CODES = {"ended": 0, "following": 0, "adopted": 0, "refused": 2, "overtaken": 6, "away": 8}

_REPLICATE_EXAMPLES = """\b
Examples:
  satchel replicate my-digest s3://bucket/backups/my-digest
  satchel replicate ~/runs s3://bucket/backups    all runs
  satchel replicate ~/runs --once                 for cron
"""


@click.command("replicate", epilog=_REPLICATE_EXAMPLES)
@click.argument("root", metavar="WS|ROOT", shell_complete=complete_folders)
@click.argument("to", metavar="[DST]", required=False, shell_complete=complete_folders)
@click.option("--once", is_flag=True, help="Bring each backup up to date, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, for programs.")
@storage_option
@click.pass_context
def replicate_command(ctx: click.Context, root: str, to: str | None, once: bool, as_json: bool) -> None:
    """Let a backup follow the workspace WS, or each one under the folder ROOT, until Ctrl-C or SIGTERM.

    The journal of an active run follows within a second, its other files within some. A backup is no workspace that
    anything starts; `satchel restore` goes on from it. DST is a folder or URL; {run_id} and {name} in it are replaced.
    Without DST, workspace.yaml says where (`backup:`). If a run was restored from its backup, its process here is
    stopped. Exit codes with --once: 8 if a place can't be reached, 6 if a run was restored elsewhere, 2 if a place
    can't be used.
    """
    folder = urls.local(root)
    if urls.is_remote(root) or not os.path.isdir(folder):
        raise UsageError(
            "no such folder",
            path=root,
            why="a backup follows runs on a disk",
            remedy="name a workspace, or a folder that holds some",
        )
    if to is not None and urls.is_remote(to):
        urls.check_protocol(urls.checked(to))
        use_options(to, given())
    from ...api import Replication  # with the threads that read and send

    work = Replication(os.path.realpath(folder), to, lambda event: _say(event, as_json), once)
    with _until_signal(work.over):
        notes = work.run()
    if not notes:
        raise UsageError(
            "no workspace that could be followed",
            path=root,
            why=f"no folder under it has a {DEFINITION} and a place for its backup",
            remedy="`satchel ls` shows the workspaces; name a DST, or write `backup:` into workspace.yaml",
        )
    ctx.exit(max(_CODES[note.state] for note in notes) if once else 0)


@contextmanager
def _until_signal(over: threading.Event) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(event: BackupEvent, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(event)))
        return
    tone = {"away": "yellow", "refused": "red", "overtaken": "red"}.get(event.kind, "green")
    click.echo(click.style(f"{event.kind:<10}", fg=tone) + one_line(f"{event.folder}: {event.text}"), err=True)


_RESTORE_EXAMPLES = """\b
Examples:
  satchel ls s3://bucket/backups
  satchel restore s3://bucket/backups/my-digest ./my-digest
  satchel resume ./my-digest
"""


@click.command("restore", epilog=_RESTORE_EXAMPLES)
@_from_and_to
@click.option("--nothing-after", is_flag=True, help="The lost owner has certainly done nothing after the last record.")
@click.option("--again", is_flag=True, help="Although it was restored before, to a place that is lost as well.")
def restore_command(source: str, to: str, as_json: bool, nothing_after: bool, again: bool) -> None:
    """Bring the run of the backup SRC to DST, because its machine is lost. DST must be empty or must not exist.

    From here on the lost owner is fenced off: if it comes back, it stops and says so. The run at DST repeats what was
    done after the last record of the backup. It asks before each effect that has no record, since the lost owner may
    have done it; the answer `nothing-was-done`, or --nothing-after here, ends that. If the command is interrupted, the
    same command continues.
    """
    here, storage_options = find_both(source, to)
    with transferring() as tell:
        result = here.backup.restore(
            to, again=again, nothing_after=nothing_after, progress=tell, storage_options=storage_options
        )
    if as_json:
        print_json(_transfer_json(result) | {"seq": result.seq})
        return
    if result.was_done:
        lines = [f"{result.run_id} was restored to {result.to} already; there is nothing to do"]
    else:
        lines = [
            f"restored {result.run_id} from {result.source} to {result.to}, up to record {result.seq:,}",
            f"  {counted(result.files, 'file')}, {size(result.bytes)}, each compared by its hash",
        ]
    for line in lines:
        print_folded(line)
    there = find(to, with_options=urls.is_remote(to))
    state = there.status(brief=True).state
    if not (result.was_done or nothing_after or state == "held"):
        print_folded("  it will ask before each effect that the lost owner may have done after that record")
    summary.print_next(there, state)
