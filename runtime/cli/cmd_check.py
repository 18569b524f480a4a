"""`satchel check`: is this workspace sound, and what would an opening do to it?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import click
import msgspec

from ... import schemas
from ...schemas import Where, dotted
from ...workspace import duplicates, journal, lease, rebuilding, record, salvage, saving
from ...workspace.agentmoment import folder_of_agent
from ...workspace.edits import notice
from ...workspace.errors import SatchelError, UsageError
from ...workspace.looking import Look, define, look
from ...workspace.record import BadLine
from ...workspace.settling import BRIEF
from ...workspace.store import Abilities, Store
from ...workspace.store.probing import check_conditional_puts, check_lock
from .. import windows
from . import abilities, asked, survey
from .finding import Finding, of_error, of_problem
from .output import columns, counting, fold, print_json
from .place import Place, find, json_option, look_again, workspace_argument
from .words import counted, visible

_READ_LIMIT = 1 << 30
_WORTH_A_BAR = 4000  # records
_LOOKS = 3  # at a workspace that is running, whose files change under the look

_EXAMPLES = """\b
Examples:
  satchel check my-digest
  satchel check --json my-digest | jq '.problems[].file'
  satchel check --storage s3://my-bucket/runs
"""


@dataclass(slots=True)
class _Checked:
    problems: list[Finding] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)  # what an opening would do
    handled: set[str] = field(default_factory=set)  # files of which that says all there is to say
    seen: Look | None = None
    same_run_id: list[str] = field(default_factory=list)  # folders next to it
    locks_fail: bool = False  # one was tried


@click.command("check", short_help="Is it sound, and what would an opening do?", epilog=_EXAMPLES)
@workspace_argument
@click.option(
    "--storage", "only_storage", is_flag=True,
    help="Only tell what the storage can do, be there a workspace or not yet. A bucket is tried with a small file that "
    "is removed again.",
)  # fmt: skip
@json_option
@click.pass_context
def command(ctx: click.Context, workspace: str | None, only_storage: bool, as_json: bool) -> None:
    """Check every file of a workspace, and tell what an opening would do, and what its storage can be trusted with.
    Runs no code, and changes nothing.

    Exit code 0 if nothing is wrong and the run could go on, else 2.
    """
    if only_storage:
        _try_storage(find(workspace or ".").store, as_json)
        return
    place = find(workspace)
    for _ in range(_LOOKS):
        checked = _check(place.store)
        holder = _holder(place.store)
        if not checked.problems or holder is None:
            break
        look_again(place.store, 0.2)
    if as_json:
        print_json(_json(place, checked))
    else:
        for line in _lines(place, checked, holder is not None, columns(sys.stdout)):
            click.echo(line)
    ctx.exit(2 if checked.problems else 0)


def _try_storage(store: Store, as_json: bool) -> None:
    """UsageError or StorageFailed if it does not keep what it states."""
    can, width = store.abilities, columns(sys.stdout)
    is_tried = can.exclusive_create or can.lock
    if can.lock:
        check_lock(store)
    elif can.exclusive_create:
        check_conditional_puts(store)
    if as_json:
        print_json({"url": store.url, "tried": is_tried, "storage": abilities.as_json(can)})
        return
    for line in _storage(can, width):
        click.echo(line)
    tried = "a lock was tried, and granted" if can.lock else "conditional writes were tried, and kept others out"
    said = tried if is_tried else "stated, and not tried"
    for line in _titled("note", "cyan", said, width):
        click.echo(line)


def _check(store: Store) -> _Checked:
    checked = _Checked()
    try:
        described = define(store)
    except UsageError:
        raise  # not a workspace
    except SatchelError as error:
        checked.problems += of_error(error)
    else:
        try:
            checked.seen = look(store, described=described)
        except SatchelError as error:
            checked.problems += of_error(error)
    if checked.seen:
        try:
            windows.check(store, checked.seen.definition)
        except SatchelError as error:
            checked.problems += of_error(error)
        _foresee(store, checked.seen, checked)
        if not store.abilities.remote:
            checked.same_run_id = duplicates.beside(store.url, checked.seen.definition.run_id)
    if store.abilities.lock:
        try:
            check_lock(store)
        except SatchelError as error:
            checked.problems += of_error(error)
            checked.locks_fail = True
    checked.problems += _histories(store)
    checked.problems += _journal(store, checked.seen)
    checked.problems += [
        found
        for found in survey.files(store, checked.seen.moment if checked.seen else None)
        if found.file not in checked.handled
    ]
    checked.problems = list(dict.fromkeys(checked.problems))
    return checked


def _foresee(store: Store, seen: Look, checked: _Checked) -> None:
    """Steps 3 to 5 of an opening, without doing them."""
    moment = seen.moment
    checked.planned += seen.complaints
    noticed = notice(store, moment, seen.definition, is_rebuilt=seen.is_rebuilt, patience=BRIEF)
    if seen.is_rebuilt and (begun := rebuilding.begun(moment)):
        checked.problems += of_error(begun)
    checked.handled = noticed.handled
    for refusal in noticed.refusals:
        checked.problems += of_error(refusal.error)
    for question in noticed.questions:
        remedy = "Settle it with `satchel merge`; its `--use ours` discards what the file says"
        checked.problems += [Finding(question.path, "", place, "", remedy) for place in question.places]
    for edit in noticed.edits:
        checked.planned += [f"{edit.record.file}: {say}" for say in edit.record.says]
    checked.planned += noticed.told
    checked.planned += [saving.said(path) for path in noticed.being_saved]
    if noticed.leftovers:
        checked.planned.append(f"{counted(len(noticed.leftovers), 'step file')} of finished items would be removed")
    for path in noticed.plans:
        checked.planned.append(f"the plan in {folder_of_agent(path)}todo.md would be adopted")
    for leftover in salvage.leftovers(store, moment):
        if not leftover.stale:
            checked.planned.append(f"{salvage.describe(leftover)}; it would be kept in recovered/")


def _histories(store: Store) -> Iterator[Finding]:
    """Copies of the run that were put together, also where no opening would look."""
    try:
        error = journal.woven(store)
    except SatchelError:
        return  # what can't be read is told by whoever reads it next
    yield from of_error(error) if error else ()


def _journal(store: Store, seen: Look | None) -> Iterator[Finding]:
    """Every record against its schema. What a crash has torn off is not a finding."""
    paths = [journal.segment_path(first) for first in journal.segments(store)]
    torn = seen.tail.last_segment if seen and seen.tail.torn else None
    total = seen.tail.next_seq - 1 if seen else 0
    with counting("reading the journal", total, _WORTH_A_BAR) as told:
        done = 0
        for path in paths:
            try:
                data = store.read(path, limit=_READ_LIMIT).data if path != torn or seen is None else seen.tail.good
            except SatchelError as error:
                yield from of_error(error)
                continue
            for number, row in enumerate(data.split(b"\n"), 1):
                if row:
                    yield from _record(path, number, row)
                    done += 1
                    if done % 500 == 0:
                        told(done)


def _record(path: str, number: int, row: bytes) -> Iterator[Finding]:
    try:
        record.parse(row)
    except BadLine as error:
        yield Finding(path, f"line {number}", str(error), "", "Take the file from a backup")
        return
    except SatchelError as error:
        yield Finding(path, f"line {number}", str(error), "", "")
        return

    def place(where: Where) -> str:
        return f"line {number} ({dotted(where)})"

    try:
        value = msgspec.json.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # in a result, which nothing has read
        yield Finding(
            path, f"line {number}", f"a value that can't be read ({error})", "", "Take the file from a backup"
        )
        return
    for problem in schemas.problems("record", value, place=place):
        yield of_problem(path, problem)


def _lines(place: Place, checked: _Checked, is_running: bool, width: int) -> Iterator[str]:
    for problem in checked.problems:
        yield from _titled("wrong", "red", str(problem), width)
    for plan in () if is_running else checked.planned:
        yield from _titled("note", "cyan", visible(plan), width)
    moment = checked.seen.moment if checked.seen else None
    if checked.same_run_id and moment is not None:
        same = duplicates.said(moment.run_id, [place.store.url, *checked.same_run_id])
        yield from _titled("note", "cyan", visible(same), width)
    for question in asked.as_words(moment, place) if moment else ():
        yield from fold(question, width)
    if is_running:
        process = "a process is running this workspace" + (
            ", so some of this may be files that were caught in mid-change: check again when it has stopped"
            if checked.problems else ""
        )  # fmt: skip
        yield from _titled("note", "cyan", process, width)
    if checked.problems:
        yield f"{counted(len(checked.problems), 'problem')} in {visible(place.store.url)}"
    elif moment is not None:
        records = counted(moment.seq, "record")
        yield f"{click.style('in order', fg='green', bold=True)}: {moment.run_id}, {records}, {moment.status}"
    yield from _storage(place.store.abilities, width, locks_fail=checked.locks_fail)


def _storage(can: Abilities, width: int, *, locks_fail: bool = False) -> Iterator[str]:
    for ability in abilities.in_words(can, locks_fail=locks_fail):
        yield from _titled("storage", "cyan", ability, width)


def _titled(title: str, colour: str, text: str, width: int) -> Iterator[str]:
    first, *more = fold(text, width, 8)
    yield click.style(f"{title:<8}", fg=colour) + first
    yield from (f"        {line}" for line in more)


def _json(place: Place, checked: _Checked) -> dict[str, object]:
    moment = checked.seen.moment if checked.seen else None
    return {
        "workspace": place.store.url,
        "ok": not checked.problems,
        "problems": [asdict(problem) for problem in checked.problems],
        "an_opening_would": checked.planned,
        "same_run_id": checked.same_run_id,
        "open_questions": asked.as_json(moment, place) if moment else [],
        "storage": abilities.as_json(place.store.abilities, locks_fail=checked.locks_fail),
    }


def _holder(store: Store) -> lease.Lease | None:
    try:
        return lease.holder(store)
    except (SatchelError, OverflowError):  # the survey says what is wrong with it
        return None
