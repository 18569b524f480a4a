"""Check whether a workspace is sound, what an opening would do to it, and what its storage guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct, field

from ... import schemas
from ...schemas import Where, dotted
from ...workspace import journal
from ...workspace.base import SatchelError, UsageError, arguments, counted
from ...workspace.inbound import saving
from ...workspace.inbound.edits import notice
from ...workspace.inspect import Look, define, discovery, lease, look, rebuild
from ...workspace.journal.records import BadLine, LineReader
from ...workspace.lifecycle import recovery
from ...workspace.state import Moment, folder_of_agent
from ...workspace.store import Abilities, Exposure, Store, check_conditional_puts, check_lock, check_writes
from ...workspace.views import BRIEF
from ..limits import TriedNotice, limits, notices
from . import survey
from .finding import Finding, of_error, of_problem
from .place import Place
from .questions import OpenQuestion, questions_of
from .waiting import Steps

_READ_LIMIT = 1 << 30
_LOOKS = 3  # a running workspace, whose files change meanwhile
_TOLD = 500  # records

Progress = Callable[[int, int], None]


class Checked(Struct):
    """The findings of a check. Without `problems` the workspace is sound, and the run can continue.

    `problems`: each has its file, the place in it, what was found, what was expected, and a remedy. `planned`: what the
    next opening would do, in words. `questions` that are open. `same_run_id`: folders next to it with the same run_id.
    `abilities` of the storage. `locks_fail`: the storage refused a lock. `is_running`: a process has the workspace, so
    a problem may be a file that was read while it changed. `moment`: the recorded state; None if it can't be read.
    """

    url: str
    abilities: Abilities
    problems: list[Finding] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    questions: list[OpenQuestion] = field(default_factory=list)
    same_run_id: list[str] = field(default_factory=list)
    locks_fail: bool = False
    is_running: bool = False
    seen: Look | None = None
    handled: set[str] = field(default_factory=set)  # files that `planned` and `problems` already cover

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems

    @property
    def moment(self) -> Moment | None:
        return self.seen.moment if self.seen else None


class Tried(Struct, frozen=True):
    """What a storage declares, and which of it was tried and is true. `writes`: it takes files, and no more.
    `exposure`: who can read it, and whether what is there stays, as far as the storage tells."""

    url: str
    abilities: Abilities
    tried: Literal["lock", "conditional writes", "exclusive creation", "writes"]
    exposure: Exposure


def check(place: Place, progress: Progress | None) -> Steps[Checked]:
    """Check every file. If something is wrong that a process may just be writing, check again."""
    arguments.function("progress", progress)
    for number in range(_LOOKS):
        if number:
            yield from place.look_again(0.2)
        checked = _checked(place.store, progress or (lambda done, total: None))
        checked.is_running = _holder(place.store) is not None
        if not (checked.problems and checked.is_running):
            break
    checked.abilities = place.store.abilities  # for a bucket they may be known better by now
    if checked.moment is not None:
        checked.questions = questions_of(checked.moment, place)
    return checked


def try_storage(store: Store) -> Tried:
    """UsageError or StorageFailed if the storage does not do what it declares, or can't be written."""
    check_writes(store)
    can = store.abilities
    tried: Literal["lock", "conditional writes", "exclusive creation", "writes"] = "writes"
    if can.lock:
        check_lock(store)
        tried = "lock"
    elif can.exclusive_create:
        check_conditional_puts(store)
        tried = "conditional writes" if can.conditional_replace else "exclusive creation"
    return Tried(store.url, can, tried, store.exposure())


def try_notices(store: Store) -> list[TriedNotice]:
    """Send a test notice to each address of `notify:`."""
    definition = define(store)
    limits.check(store, definition)
    return notices.try_all(definition.run_id, store.url, definition.notify)


def _checked(store: Store, progress: Progress) -> Checked:
    checked = Checked(store.url, store.abilities)
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
            limits.check(store, checked.seen.definition)
        except SatchelError as error:
            checked.problems += of_error(error)
        _foresee(store, checked.seen, checked)
        if not store.abilities.remote:
            checked.same_run_id = discovery.duplicates_beside(store.url, checked.seen.definition.run_id)
    if store.abilities.lock:
        try:
            check_lock(store)
        except SatchelError as error:
            checked.problems += of_error(error)
            checked.locks_fail = True
    checked.problems += _histories(store)
    checked.problems += _journal(store, checked.seen, progress)
    checked.problems += [
        found
        for found in survey.files(store, checked.moment, is_active=_holder(store) is not None)
        if found.file not in checked.handled
    ]
    checked.problems = list(dict.fromkeys(checked.problems))
    return checked


def _foresee(store: Store, seen: Look, checked: Checked) -> None:
    """Steps 3 to 5 of an opening, without executing them."""
    moment = seen.moment
    checked.planned += seen.complaints
    noticed = notice(store, moment, seen.definition, is_rebuilt=seen.is_rebuilt, patience=BRIEF)
    if seen.is_rebuilt and (begun := rebuild.begun(moment)):
        checked.problems += of_error(begun)
    checked.handled = noticed.handled
    for refusal in noticed.refusals:
        checked.problems += of_error(refusal.error)
    for question in noticed.questions:
        remedy = "Resolve it with `satchel merge`; its `--use ours` uses the run's version"
        checked.problems += [Finding(question.path, "", place, "", remedy) for place in question.places]
    for edit in noticed.edits:
        checked.planned += [f"{edit.record.file}: {say}" for say in edit.record.says]
    checked.planned += noticed.told
    checked.planned += [saving.said(path) for path in noticed.being_saved]
    if noticed.leftovers:
        checked.planned.append(f"{counted(len(noticed.leftovers), 'step file')} of finished items would be removed")
    for path in noticed.plans:
        checked.planned.append(f"the plan in {folder_of_agent(path)}todo.md would be adopted")
    for leftover in recovery.leftovers(store, moment):
        if not leftover.stale:
            checked.planned.append(f"{recovery.describe(leftover)}; it would be kept in recovered/")


def _histories(store: Store) -> Iterator[Finding]:
    """Copies of the run in one folder, also where an opening would not look."""
    try:
        error = journal.woven(store)
    except (SatchelError, FileNotFoundError):
        return  # the next reader of the file reports the error; or the process that runs it has merged or pruned it
    yield from of_error(error) if error else ()


def _journal(store: Store, seen: Look | None, progress: Progress) -> Iterator[Finding]:
    """Every record against its schema. A torn end after a crash is not a finding."""
    paths = [journal.kept_path(up_to) for up_to in journal.kept_files(store)]
    paths += [journal.segment_path(first) for first in journal.segments(store)]
    torn = seen.tail.last_segment if seen and seen.tail.torn else None
    total = seen.tail.next_seq - 1 if seen else 0
    done = 0
    for path in paths:
        try:
            data = store.read(path, limit=_READ_LIMIT).data if path != torn or seen is None else seen.tail.good
        except FileNotFoundError:
            continue  # the process that runs it has merged or pruned it; `look` tells of a record that is missing
        except SatchelError as error:
            yield from of_error(error)
            continue
        reader = LineReader()
        for number, row in enumerate(data.split(b"\n"), 1):
            if row:
                yield from _record(path, number, row, reader)
                done += 1
                if done % _TOLD == 0:
                    progress(done, total)


def _record(path: str, number: int, row: bytes, reader: LineReader) -> Iterator[Finding]:
    try:
        reader.parse(row)
    except BadLine as error:
        yield Finding(path, f"line {number}", str(error), "", "Restore the file from a backup")
        return
    except SatchelError as error:
        yield Finding(path, f"line {number}", str(error), "", "")
        return

    def place(where: Where) -> str:
        return f"line {number} ({dotted(where)})"

    try:
        value = msgspec.json.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # in a result that no code has read
        yield Finding(
            path, f"line {number}", f"a value that can't be read ({error})", "", "Restore the file from a backup"
        )
        return
    for problem in schemas.problems("record", value, place=place):
        yield of_problem(path, problem)


def _holder(store: Store) -> lease.Lease | None:
    try:
        return lease.holder(store)
    except (SatchelError, OverflowError):  # the survey reports it
        return None
