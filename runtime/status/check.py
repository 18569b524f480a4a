"""Check whether a workspace is sound, what an opening would do to it, and what its storage guarantees.

Every file is checked against its schema and its record. There is one function for each kind of file; each yields its
findings and never stops the others. Changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from ... import schemas
from ...schemas import Where, dotted
from ...workspace import journal
from ...workspace.base import (
    SCHEMAS,
    Damaged,
    InvalidFile,
    NewerFormat,
    SatchelError,
    UsageError,
    arguments,
    counted,
    decode,
    visible,
)
from ...workspace.formats import jsontext, pause_file
from ...workspace.inbound import APPROVALS, archive, describe_saving, form_problems, inbox, notice, rejection
from ...workspace.inspect import Look, begun, define, discovery, lease, look
from ...workspace.journal import BadLine, Kept, LineReader, StepCompleted, blobs
from ...workspace.lifecycle import recovery
from ...workspace.state import Moment, checkpoint, folder_of_agent
from ...workspace.store import (
    Abilities,
    Exposure,
    Store,
    check_conditional_puts,
    check_lock,
    check_writes,
    read_if_there,
)
from ...workspace.views import (
    BRIEF,
    checkpoint_folder,
    conversation,
    partial_files,
    projection,
    running_file,
    schema_files,
)
from ..live import NoticeCheck, notices, reverify
from .activity import OpenQuestion, questions_of
from .place import Place, Steps

_READ_LIMIT = 1 << 30

_BACKUP = "Restore the file from a backup"

_LOOKS = 3  # a running workspace, whose files change meanwhile

_TOLD = 500  # records


class Finding(Struct, frozen=True):
    """What is wrong with a file, where, and what to do, as separate texts. `str` of it is one sentence, safe to
    print."""

    file: str
    place: str
    found: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        expected = f", expected {self.expected}" if self.expected else ""
        remedy = f". {self.remedy[0].upper()}{self.remedy[1:]}" if self.remedy else ""
        found = f"found {self.found}" if self.expected else self.found
        return visible(f"{self.file}{place}: {found}{expected}{remedy}")


def of_error(error: SatchelError, file: str = "the workspace") -> Iterator[Finding]:
    """An error as findings. `file` is used if the error names none."""
    path = error.path or file
    if isinstance(error, InvalidFile):
        yield from (Finding(path, *problem) for problem in error.problems)
    else:
        found = f"{error.what}: {error.why}" if error.why else error.what
        yield Finding(path, "", found, "", error.remedy or "")


def files(store: Store, moment: Moment | None, *, is_active: bool) -> Iterator[Finding]:
    """The findings in all files except the journal. Without a moment, only those that need none. `is_active`: a process
    has the run; otherwise a crash may have torn the file about its calls, which the next opening removes."""
    yield from _guarded(_checkpoints, store)
    yield from _guarded(_checkpoint_folders, store)
    yield from _guarded(json_file, store, lease.PATH, "lease")
    if is_active:
        yield from _guarded(json_file, store, running_file.PATH, "running")
    yield from _guarded(_pause, store)
    yield from _guarded(_approvals, store)
    yield from _guarded(_inbox, store)
    agents = {agent.folder: agent.has_data for agent in moment.agents.values()} if moment else {"": None}
    for folder, has_data in agents.items():
        yield from _guarded(_state, store, folder, has_data)
        for check_files in (_steps, _messages, _recovered):
            yield from _guarded(check_files, store, folder)
    yield from _guarded(_result_schemas, store)
    if moment is not None:
        yield from _guarded(_partials, store, moment)
        yield from _guarded(_outputs, store, moment)
        yield from _guarded(_blobs, store, moment)


def _guarded(look: Callable[..., Iterator[Finding]], *args: Any) -> Iterator[Finding]:
    """A file that can't be read must not hide findings in the next one."""
    try:
        yield from look(*args)
    except SatchelError as error:
        yield from of_error(error)
    except OSError as error:
        yield Finding(str(error.filename or "the workspace"), "", error.strerror or str(error), "", "")


def json_file(
    store: Store, path: str, kind: str, data_schema: dict[str, Any] | bool | None = None
) -> Iterator[Finding]:
    """A JSON file against a schema; nothing if there is no such file."""
    try:
        text = decode(store.read(path, limit=_READ_LIMIT).data, path)
        value = jsontext.load(text, path)
    except FileNotFoundError:
        return
    except InvalidFile as error:
        yield from of_error(error)
        return
    for problem in schemas.problems(kind, value, place=jsontext.place_of(text), data_schema=data_schema):
        yield Finding(path, *problem)


def _state(store: Store, folder: str, has_data: bool | None) -> Iterator[Finding]:
    """`has_data`: the agent has its own state, so `data` must fit its type and not be null. None: the journal can't
    tell, and `data` may be null."""
    if has_data is None:
        has_data = _shows_data(store, folder + projection.STATE)
    path = f"{SCHEMAS}/{folder}data.json"
    try:
        text = decode(store.read(path).data, path)
        own = jsontext.load(text, path)
    except FileNotFoundError:
        own = None
    except InvalidFile as error:
        yield from of_error(error)
        own = None
    own = own if has_data and isinstance(own, dict | bool) else None
    yield from json_file(store, folder + projection.STATE, "state", own)


def _shows_data(store: Store, path: str) -> bool:
    try:
        value = jsontext.load(decode(store.read(path, limit=_READ_LIMIT).data, path), path)
    except (FileNotFoundError, InvalidFile):
        return False
    return isinstance(value, dict) and value.get("data") is not None


def _checkpoints(store: Store) -> Iterator[Finding]:
    for path in checkpoint.paths(store):
        try:
            checkpoint.load(store, path)
            value = msgspec.json.decode(store.read(path, limit=_READ_LIMIT).data)
        except FileNotFoundError:
            continue  # a newer one has replaced it meanwhile
        except NewerFormat as error:
            yield from of_error(error, path)
        except InvalidFile as error:
            yield from of_error(error)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            # Harmless while an older one is good, but then something is wrong with the disk.
            yield Finding(
                path, "", f"it can't be used: {error}", "", "Remove it: the run uses an older one or the journal"
            )
        else:
            yield from _plain("checkpoint", path, value)


def _checkpoint_folders(store: Store) -> Iterator[Finding]:
    for path in checkpoint_folder.edited(store):
        remedy = "The run never reads this file: make the change in the file of that name of the workspace"
        yield Finding(path, "", "it was changed", "what the run was at this checkpoint", remedy)


def _inbox(store: Store) -> Iterator[Finding]:
    for path in inbox.files(store):
        try:
            inbox.parse(path, store.read(path, limit=inbox.LIMIT).data)
        except FileNotFoundError:
            continue  # taken meanwhile
        except InvalidFile as error:
            yield from of_error(error)
    for path in inbox.others(store):
        yield Finding(path, "", "neither .md nor .yaml", "a task", "Rename it, or move it away")
    for name in store.unusable(archive.INBOX):
        found = f"the file {name}, whose name is not valid on every system; the run ignores it"
        yield Finding(archive.INBOX, "", found, "letters, digits, hyphens and dots", "Rename it")


def _pause(store: Store) -> Iterator[Finding]:
    try:
        pause_file.parse(store.read(pause_file.PATH, limit=pause_file.LIMIT).data)
    except FileNotFoundError:
        pass
    except InvalidFile as error:
        yield from of_error(error)


def _approvals(store: Store) -> Iterator[Finding]:
    """The next opening checks whether an answer fits its question, and writes that into the file."""
    for entry in store.list(APPROVALS):
        if not entry.path.endswith(".yaml") or rejection.KEPT.search(entry.path):
            continue
        if (found := read_if_there(store, entry.path)) is not None:
            for problem in form_problems(entry.path, found.data):
                yield Finding(entry.path, *problem)


def _steps(store: Store, folder: str) -> Iterator[Finding]:
    for of_scope in store.folders(folder + projection.STEPS):
        for entry in store.list(of_scope):
            yield from json_file(store, entry.path, "step")


def _result_schemas(store: Store) -> Iterator[Finding]:
    for path in schema_files.damaged_results(store):
        remedy = "`satchel recover` removes it, as each start does; the next new result of its type writes it again"
        yield Finding(path, "", "what can't be used", "the schema of a step's result", remedy)


def _partials(store: Store, moment: Moment) -> Iterator[Finding]:
    for leftover in recovery.leftovers(store, moment):
        if leftover.head is not None:
            yield from _plain("partial", leftover.path, asdict(leftover.head))


def _recovered(store: Store, folder: str) -> Iterator[Finding]:
    for of_scope in store.folders(folder + partial_files.RECOVERED):
        for entry in store.list(of_scope):
            if entry.path.endswith("-damaged.md"):
                continue  # kept for people; it never had a front matter
            if (found := read_if_there(store, entry.path, limit=_READ_LIMIT)) is None:
                continue  # pruned meanwhile
            parsed = partial_files.parse_recovered(found.data)
            if parsed is None:
                remedy = "Move it away; the next attempt then starts its answer again"
                yield Finding(entry.path, "line 1", "no front matter", "what marks a recovered text", remedy)
            else:
                yield from _plain("recovered", entry.path, asdict(parsed[0]))


def _messages(store: Store, folder: str) -> Iterator[Finding]:
    path = folder + conversation.NAME
    if (found := read_if_there(store, path, limit=_READ_LIMIT)) is None:
        return
    remedy = "Move the file away: it is rebuilt from the journal"
    for number, row in enumerate(found.data.split(b"\n")[:-1], 1):  # a last line without an end is what a crash leaves
        try:
            value = msgspec.json.decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            yield Finding(path, f"line {number}", f"what is not JSON ({error})", "one message", remedy)
            return
        problems = schemas.problems("message", value)
        for problem in problems:
            yield Finding(path, f"line {number} ({problem.place})", problem.found, problem.expected, remedy)
        if problems:
            return


def _outputs(store: Store, moment: Moment) -> Iterator[Finding]:
    at_rest = reverify.outputs_at_rest(moment)
    for path, output in moment.outputs.items():
        there = read_if_there(store, path, limit=_READ_LIMIT)
        if there is None:
            yield Finding(path, "", "no such file", "the output that the run made", _BACKUP)
        elif path in at_rest and hashlib.sha256(there.data).hexdigest() != output.sha256:
            found = f"{len(there.data):,} bytes that differ from what the run wrote"
            yield Finding(path, "", found, f"its {output.bytes:,} bytes", "If it was edited on purpose, ignore this")


def _blobs(store: Store, moment: Moment) -> Iterator[Finding]:
    kept_results: list[Kept | StepCompleted] = []
    for agent in moment.agents.values():
        kept_results += agent.results.values()
        kept_results += [kept for kept in (agent.input, agent.result) if kept]
        for scope in agent.scopes.values():
            kept_results += scope.done.values()
        for past in agent.past.values():
            kept_results += past.done.values()
    kept_results += [Kept(task.content, task.blob) for task in moment.tasks.values()]
    for kept in kept_results:
        if kept.blob:
            try:
                blobs.fetch(store, kept)
            except Damaged as error:
                yield from of_error(error)


def _plain(kind: str, file: str, value: Any) -> Iterator[Finding]:
    place: Callable[[Where], str] = dotted
    for problem in schemas.problems(kind, value, place=place):
        yield Finding(file, *problem)


Progress = Callable[[int, int], None]


class CheckResult(Struct):
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


class StorageCheck(Struct, frozen=True):
    """What a storage declares, and which of it was tried and is true. `writes`: it takes files, and no more.
    `exposure`: who can read it, and whether what is there stays, as far as the storage tells."""

    url: str
    abilities: Abilities
    tried: Literal["lock", "conditional writes", "exclusive creation", "writes"]
    exposure: Exposure


def check(place: Place, progress: Progress | None) -> Steps[CheckResult]:
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


def try_storage(store: Store) -> StorageCheck:
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
    return StorageCheck(store.url, can, tried, store.exposure())


def try_notices(store: Store) -> list[NoticeCheck]:
    """Send a test notice to each address of `notify:`."""
    definition = define(store)
    notices.check(store, definition)
    return notices.try_all(definition.run_id, store.url, definition.notify)


def _checked(store: Store, progress: Progress) -> CheckResult:
    checked = CheckResult(store.url, store.abilities)
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
            notices.check(store, checked.seen.definition)
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
        for found in files(store, checked.moment, is_active=_holder(store) is not None)
        if found.file not in checked.handled
    ]
    checked.problems = list(dict.fromkeys(checked.problems))
    return checked


def _foresee(store: Store, seen: Look, checked: CheckResult) -> None:
    """Steps 3 to 5 of an opening, without executing them."""
    moment = seen.moment
    checked.planned += seen.complaints
    noticed = notice(store, moment, seen.definition, is_rebuilt=seen.is_rebuilt, patience=BRIEF)
    if seen.is_rebuilt and (asked := begun(moment)):
        checked.problems += of_error(asked)
    checked.handled = noticed.handled
    for refusal in noticed.refusals:
        checked.problems += of_error(refusal.error)
    for question in noticed.questions:
        remedy = "Resolve it with `satchel merge`; its `--use ours` uses the run's version"
        checked.problems += [Finding(question.path, "", place.says, "", remedy) for place in question.places]
    for edit in noticed.edits:
        checked.planned += [f"{edit.record.file}: {say}" for say in edit.record.says]
    checked.planned += noticed.told
    checked.planned += [describe_saving(path) for path in noticed.being_saved]
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
    """Every record against its schema, and whether each is there. A torn end after a crash is not a finding."""
    paths = {journal.kept_path(up_to): 0 for up_to in journal.kept_files(store)}
    paths |= {journal.segment_path(first): first for first in journal.segments(store)}
    torn = seen.tail.last_segment if seen and seen.tail.torn else None
    total = seen.tail.next_seq - 1 if seen else 0
    done = due = 0
    for path, first in paths.items():
        if seen and 0 < due < first:  # else `look` tells of it
            yield Finding(path, "", f"records {due} to {first - 1} are missing before it", "", _BACKUP)
        before, due = due, 0
        try:
            data = store.read(path, limit=_READ_LIMIT).data if path != torn or seen is None else seen.tail.good
        except FileNotFoundError:
            continue  # the process that runs it has merged or pruned it; `look` tells of a record that is missing
        except SatchelError as error:
            yield from of_error(error)
            continue
        rows = data.split(b"\n")
        due = max(before, first + sum(map(bool, rows))) if first else 0
        reader = LineReader()
        for number, row in enumerate(rows, 1):
            if row:
                yield from _record(path, number, row, reader)
                done += 1
                if done % _TOLD == 0:
                    progress(done, total)


def _record(path: str, number: int, row: bytes, reader: LineReader) -> Iterator[Finding]:
    try:
        reader.parse(row)
    except BadLine as error:
        yield Finding(path, f"line {number}", str(error), "", _BACKUP)
        return
    except SatchelError as error:
        yield Finding(path, f"line {number}", str(error), "", "")
        return

    def place(where: Where) -> str:
        return f"line {number} ({dotted(where)})"

    try:
        value = msgspec.json.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # in a result that no code has read
        yield Finding(path, f"line {number}", f"a value that can't be read ({error})", "", _BACKUP)
        return
    for problem in schemas.problems("record", value, place=place):
        yield Finding(path, *problem)


def _holder(store: Store) -> lease.Lease | None:
    try:
        return lease.holder(store)
    except (SatchelError, OverflowError):  # the survey reports it
        return None
