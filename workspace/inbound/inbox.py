"""The inbox: what a file in `inbox/` is, which ones wait, how they are taken or handed on, and how they are sent.

`*.md` is text, `*.yaml` is a JSON value. Both are tasks, except a YAML with `kind: message`. A task is identified by
its file's name and SHA-256: another file under an old name is another task, and the same file that comes back after a
power failure is not.

A time of `schedule:`, which `satchel serve` puts there, is identified by the name of its schedule and its due time, and
so is its file. The file is created exclusively, so two processes that serve a workspace make one. The moment remembers
the last ones that were taken (`Moment.fired`): one that is made again, by a process that was frozen meanwhile, is no
task any more.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ...schemas import Problem, short
from ..base import DEFINITION, InvalidFile, SatchelError, UsageError, decode, fitting, place, slug, urls
from ..formats import yamltext
from ..journal import Kept, TaskDone, TaskTaken, blobs
from ..state import Moment, scope_of_task
from ..store import LARGE_LIMIT, FileContent, Store, Version, open_store, read_if_there
from ..views import BRIEF, Settling, Stage, guarded_files
from . import archive
from .archive import INBOX, bring_back, changed, discard, put_away, sha_of
from .findings import RejectedFile, sha
from .rejection import is_of_tools, reject

if TYPE_CHECKING:
    from ..formats import Definition, YamlDocument
    from ..inspect import Report
    from ..journal import Journal

LIMIT = 1 << 20
"""Bytes of a task. Put more into a file of its own, which the task can name."""

InboxKind = Literal["task", "message", "schedule"]

_TEXT = (".md",)
_DATA = (".yaml", ".yml")
_FIRED = re.compile(r"inbox/schedule-([a-z0-9][a-z0-9-]*)-([0-9]{8}T[0-9]{6}Z)\.yaml")
_SENT = re.compile(r"inbox/([0-9]{8}T[0-9]{6})\.[0-9]{6}Z-([0-9a-f]{6}|[0-9a-f]{32}-[0-9a-f]{16})[-.]")


class Said(NamedTuple):
    """The content of a file: a text, or the value of a YAML, as JSON."""

    kind: InboxKind
    content: bytes
    firing: Firing | None = None  # of a schedule, which has no other content


class InboxFile(NamedTuple):
    """A file that can be taken."""

    path: str
    sha256: str
    said: Said
    data: bytes


# Which files there are


def files(store: Store) -> list[str]:
    """The task files by name, in order. An empty one is about to be written."""
    return [entry.path for entry in store.list(INBOX) if entry.size and _is_task(entry.path)]


def others(store: Store) -> list[str]:
    """Files that a person may take for tasks, and that are none."""
    return [entry.path for entry in store.list(INBOX) if not _is_task(entry.path) and not is_of_tools(entry.path)]


def waiting(store: Store, moment: Moment) -> list[str]:
    """The files that no agent has taken yet."""
    taken = known(moment)
    names = {file for file, _ in taken}
    found = [
        path
        for path in files(store)
        if (path not in names or (path, sha_of(store, path)) not in taken) and not _was_fired(moment, path)
    ]
    doubles = archive.doubles(store, moment, found)
    return [path for path in found if path not in doubles]


def _was_fired(moment: Moment, path: str) -> bool:
    """Whether it is a time of a schedule that was taken before, and was made again."""
    found = firing_of_file(path)
    return found is not None and was_taken(moment, found)


def known(moment: Moment) -> set[tuple[str, str]]:
    """The files, with their hashes, that are taken, or done and perhaps not yet moved."""
    taken = {(task.file, task.sha256) for task in moment.tasks.values()}
    return taken | {(task.file, task.sha256) for task in moment.tasks_done.values()}


def has_work(store: Store, moment: Moment) -> bool:
    """Whether a completed run has something to do: a taken task that is not done, or a new one."""
    return any(not task.handed_to for task in moment.tasks.values()) or bool(new_tasks(store, moment))


def new_tasks(store: Store, moment: Moment) -> list[str]:
    """The waiting files for which a completed run is entered again: tasks that its agent could not take before. So an
    agent that never looks into its inbox is entered once for each file."""
    return [
        path
        for path in waiting(store, moment)
        if moment.untaken.get(path, "none") != sha_of(store, path) and _kind(store, path) != "message"
    ] + changed(store)


Offered = Mapping[str, Version | None]
"""The files that an agent could have taken: those that had settled at its last look, or that existed when it was called
if it has not looked."""


def offered(store: Store, moment: Moment) -> Offered:
    """The files offered to an agent that is about to be called."""
    return {path: store.version(path) for path in waiting(store, moment)}


def untaken(store: Store, moment: Moment, offered: Offered) -> dict[str, str]:
    """The files among `offered` that still wait, unchanged, with their SHA-256."""
    left = {path: sha_of(store, path) for path in waiting(store, moment) if path in offered}
    return {path: sha256 for path, sha256 in left.items() if store.version(path) == offered[path]}


def _is_task(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.lower().endswith((*_TEXT, *_DATA)) and not is_of_tools(path)


def _kind(store: Store, path: str) -> InboxKind | None:
    try:
        return parse(path, store.read(path, limit=LIMIT).data).kind
    except (FileNotFoundError, InvalidFile):
        return None


def _is_as_sent(store: Store, path: str) -> bool:
    """Whether a file is unchanged since it was sent, and no program is saving it: it was complete from the first."""
    match = _SENT.match(path)
    if match is None or store.has_writer(path) or not (saved := store.trace(path).at):
        return False
    with suppress(ValueError):
        return abs((datetime.fromisoformat(saved) - datetime.fromisoformat(f"{match[1]}Z")).total_seconds()) <= 1
    return False


class Arrivals:
    """Looks at the waiting files until they have settled: a program may be saving one."""

    def __init__(self, store: Store, moment: Moment):
        self._store, self._moment = store, moment
        self._settling = Settling(store)
        self._kinds: dict[tuple[str, Version], InboxKind | None] = {}  # of the settled files that were read for it
        self.offered: Offered = {}  # those that have settled, in order
        self.are_changing = self.are_open = False  # some of the others, see views/guarded_files.py

    def look(self) -> None:
        """Look once more."""
        bring_back(self._store)
        stages: dict[str, Stage] = {}
        versions: dict[str, Version] = {}
        for path in waiting(self._store, self._moment):
            if (version := self._store.version(path)) is not None:
                stages[path] = "settled" if _is_as_sent(self._store, path) else self._settling.stage(path, version)
                versions[path] = version
        self._settling.keep_only(stages)
        self.offered = {path: versions[path] for path, stage in stages.items() if stage == "settled"}
        self.are_changing, self.are_open = "changing" in stages.values(), "open" in stages.values()

    def has_message(self) -> bool:
        """Look once more, and say whether one of those that have settled is a message."""
        self.look()
        files = [(path, version) for path, version in self.offered.items() if version and path.lower().endswith(_DATA)]
        self._kinds = {
            file: self._kinds[file] if file in self._kinds else _kind(self._store, file[0]) for file in files
        }
        return "message" in self._kinds.values()

    def read(self, path: str) -> InboxFile | None:
        """A file that has settled; None if it has changed again, or is gone. InvalidFile if it can't be taken."""
        try:
            if _is_as_sent(self._store, path):
                found: FileContent | None = self._store.read(path, limit=LIMIT)
            else:
                found = self._settling.read(path, limit=LIMIT)
        except FileNotFoundError:
            return None
        return None if found is None else InboxFile(path, sha(found.data), parse(path, found.data), found.data)


def look_until_settled(store: Store, moment: Moment) -> Arrivals:
    """Waits half a second at most, so only for callers that can block."""
    arrivals, until = Arrivals(store, moment), time.monotonic() + BRIEF
    arrivals.look()
    while arrivals.are_changing and time.monotonic() < until:
        time.sleep(guarded_files.WAITS.look)
        arrivals.look()
    return arrivals


# What they say


def parse(path: str, data: bytes) -> Said:
    """InvalidFile says what is wrong with it."""
    if len(data) > LIMIT:
        raise _invalid(path, "the file", "more than 1 MiB", "less", "Put large content into its own file")
    text = decode(data, path)
    if "\0" in text:
        raise _invalid(path, place(text, text.index("\0")), "a NUL character", "text", "Save it as text")
    if not text.strip():
        raise _invalid(path, "the file", "nothing", "a task", "Write what is to be done")
    if path.lower().endswith(_TEXT):
        return Said("task", msgspec.json.encode(text))
    document = yamltext.load(text, path)
    if document.root is None:
        raise _invalid(path, "the file", "only comments", "a task", "Write what is to be done")
    value = document.value
    if not isinstance(value, dict) or "kind" not in value:
        return Said("task", msgspec.json.encode(value))
    kind, rest = value["kind"], {key: each for key, each in value.items() if key != "kind"}
    if kind == "task":
        return Said("task", msgspec.json.encode(rest))
    if kind == "schedule":
        return Said("schedule", b"", _firing(path, document, rest))
    if kind != "message":
        remedy = "Rename the key if it is not meant for Satchel"
        raise _invalid(path, document.place(("kind",)), short(kind), "task or message", remedy)
    if rest.keys() != {"text"} or not isinstance(rest["text"], str):
        keys = ", ".join(rest) or "nothing"
        raise _invalid(
            path, document.place(()), keys, "`text:` with `kind: message`, and no other key", "Write `text: ...`"
        )
    return Said("message", msgspec.json.encode(rest["text"]))


def _firing(path: str, document: YamlDocument, rest: dict[str, object]) -> Firing:
    try:
        due = datetime.fromisoformat(str(rest.get("due", "")))
        if rest.keys() == {"schedule", "due"} and isinstance(rest["schedule"], str) and due.tzinfo is not None:
            return firing_at(rest["schedule"], due)
    except (ValueError, OverflowError):
        pass
    expected = "`schedule:`, its name, and `due:`, a time with its zone"
    raise _invalid(
        path, document.place(()), ", ".join(rest) or "nothing", expected, "Write these two keys, and no others"
    )


def message(text: str) -> bytes:
    """The file of a message."""
    return yamltext.dump({"kind": "message", "text": text}).encode()


def refuse(store: Store, error: InvalidFile) -> str:
    """Move a file that can't be taken to `NAME.rejected.EXT`, with the reasons next to it. Returns a message about
    it."""
    path = error.path or ""
    if (found := read_if_there(store, path, limit=LARGE_LIMIT)) is None:
        return ""
    kept = reject(store, RejectedFile(path, error, found.data), "and was moved out of the way")
    guarded_files.look_again(store, path)
    if store.version(path) == found.version:
        discard(store, path, sha(found.data), found.version)
    return f"{error}. It is kept as {kept}"


# Taking them, and putting them away


def content(store: Store, task: TaskTaken) -> object:
    return msgspec.json.decode(blobs.fetch(store, Kept(task.content, task.blob)))


def settled(moment: Moment) -> list[TaskDone]:
    """The missing records of tasks whose scope has committed, if a power failure has cut its group short."""
    root = moment.root
    ended = [task for task in moment.tasks.values() if task.scope in root.results and task.scope not in root.scopes]
    return [
        done
        for scope in {task.scope: None for task in ended}
        for done in done_with(scope, [task.id for task in ended if task.scope == scope])
    ]


def done_with(scope: str, tasks: Sequence[str]) -> list[TaskDone]:
    """The records right after a scope's commit. The task with this own scope comes last: after it nothing is known of
    the scope, and a power failure may keep only the first records of a group."""
    return [TaskDone(id=id) for id in sorted(tasks, key=lambda id: scope_of_task(id) == scope)]


def released(moment: Moment, scope: str, kept: Sequence[str]) -> list[TaskTaken]:
    """Tasks that an earlier attempt of a scope has taken and the committing one has not seen: they belong to the agent
    again."""
    return [
        msgspec.structs.replace(task, scope="")
        for task in moment.tasks.values()
        if scope and task.scope == scope and task.id not in kept
    ]


def put_away_repeated(store: Store, moment: Moment) -> None:
    """Move the files of schedule times that were taken before, and made again, into `inbox/done/`, and remove what was
    sent twice under its key. When none is running."""
    at_work = {task.file for task in moment.tasks.values()}
    paths = [path for path in files(store) if path not in at_work]
    for path in archive.doubles(store, moment, paths):
        store.remove(path)
    for path in paths:
        if _was_fired(moment, path):
            with suppress(FileNotFoundError):
                store.rename(path, f"{INBOX}/done/{path.rpartition('/')[2]}")


def settle_fired(store: Store, moment: Moment, journal: Journal, offered: Offered) -> None:
    """The agent has completed without opening its inbox: this settles the schedule times that were `offered` to it."""
    for path in [path for path in waiting(store, moment) if path in offered]:
        found = firing_of_file(path)
        if found is None or store.version(path) != offered[path]:
            continue
        put_away(store, moment)
        id = f"t{moment.tasks_taken + 1}"
        journal.add(
            TaskTaken(
                id=id,
                scope="",
                file=path,
                sha256=sha_of(store, path),
                kind="schedule",
                schedule=found.schedule,
                due=found.due,
                unopened=True,
            )
        )
        journal.add(TaskDone(id=id))
        journal.flush()
    put_away(store, moment)


# Handing them on to another workspace or to a folder: none is lost, and none is handed on twice.
#
# The copy first gets a hidden name in the target, which no run takes. Then a record says that it will be handed on.
# Then it gets its own name, and a second record says so. After a crash in between, the hidden name tells whether it was
# handed on, whatever has happened to the file since.


def redirect(store: Store, moment: Moment, journal: Journal, definition: Definition, report: Report) -> None:
    """Hand the waiting tasks on to the place in `redirect_to:`, if there is one. Errors at that place are reported, and
    the tasks stay. Messages stay too, because they are for this agent. Only for the process that has the workspace
    open."""
    if not definition.redirect_to:
        return
    handed = 0
    try:
        target, folder = _target(store, definition.redirect_to)
        arrivals = look_until_settled(store, moment)
        for path in arrivals.offered:
            try:
                found = arrivals.read(path)
            except InvalidFile:
                continue  # the agent's own start refuses it
            if found is not None and found.said.kind == "task":
                _hand_over(store, moment, journal, found, target, folder)
                handed += 1
    except _TargetFailed as error:
        report.add("wanted", f"tasks stay in {INBOX}/, because they can't be forwarded: {error}")
    if handed:
        word = "task was" if handed == 1 else "tasks were"
        report.add("done", f"{handed} {word} forwarded to {definition.redirect_to}")


def finish_redirect(store: Store, moment: Moment, journal: Journal, definition: Definition, report: Report) -> None:
    """Finish what a crash has interrupted, if `redirect_to:` still names the place. A stranger may have written the
    journal, so it does not decide what is written outside the workspace."""
    for task in [task for task in moment.tasks.values() if task.handed_to]:
        try:
            target, path = _as_handed_to(store, moment, definition, task)
            _show(target, path)
        except _TargetFailed as error:
            report.add("wanted", f"{task.file} is forwarded in part; Satchel will try to finish this: {error}")
            continue
        _done(store, moment, journal, task.id, task.handed_to)
        report.add("done", f"{task.file} was being forwarded; it is now {task.handed_to}")


def _as_handed_to(store: Store, moment: Moment, definition: Definition, task: TaskTaken) -> tuple[Store, str]:
    """The store and the path in it to which a task was being handed on, if a hand-over of this run ends there."""
    if not definition.redirect_to:
        raise _TargetFailed(
            f"it was being forwarded to {task.handed_to}, and workspace.yaml has no `redirect_to` any more"
        )
    target, folder = _target(store, definition.redirect_to)
    path = folder + _name(moment, task.id, task.sha256, task.file)
    if task.handed_to != f"{target.url}/{path}":
        raise _TargetFailed(
            f"it was being forwarded to {task.handed_to}, and `redirect_to` is {definition.redirect_to} now"
        )
    with suppress(FileNotFoundError):
        if sha(target.read(_hidden(path), limit=LARGE_LIMIT).data) != task.sha256:
            raise _TargetFailed(f"{target.url}/{_hidden(path)} is not the task that was taken")
    return target, path


class _TargetFailed(Exception):
    """An error at the target, not in this workspace."""


def _target(store: Store, redirect_to: str) -> tuple[Store, str]:
    """The store, and the folder in it with a `/` at its end."""
    try:
        target = open_store(urls.checked(urls.resolve(store.url, redirect_to)))
        if target.url == store.url or target.url == f"{store.url}/{INBOX}":
            raise UsageError("is this run's own inbox", path=redirect_to, remedy="name another one in redirect_to")
        return target, f"{INBOX}/" if target.version(DEFINITION) is not None else ""
    except SatchelError as error:
        raise _TargetFailed(str(error)) from error


def _hand_over(store: Store, moment: Moment, journal: Journal, found: InboxFile, target: Store, folder: str) -> None:
    id = f"t{moment.tasks_taken + 1}"
    path = folder + _name(moment, id, found.sha256, found.path)
    try:
        target.replace(_hidden(path), found.data)
    except SatchelError as error:
        raise _TargetFailed(str(error)) from error
    to = f"{target.url}/{path}"
    put_away(store, moment)
    journal.add(TaskTaken(id=id, scope="", file=found.path, sha256=found.sha256, handed_to=to))
    journal.flush()
    _show(target, path)
    _done(store, moment, journal, id, to)


def _show(target: Store, path: str) -> None:
    """Rename a file at the target from its hidden name to its own."""
    try:
        if target.version(_hidden(path)) is not None:
            target.rename(_hidden(path), path)
        else:
            target.settle(path.rpartition("/")[0])  # it may have got its name just before a kill
    except (SatchelError, FileNotFoundError) as error:
        raise _TargetFailed(str(error)) from error


def _done(store: Store, moment: Moment, journal: Journal, id: str, to: str) -> None:
    journal.add(TaskDone(id=id, moved_to=to))
    journal.flush()
    put_away(store, moment)


def _name(moment: Moment, id: str, sha256: str, file: str) -> str:
    """The name of a task's file at the target: no other task of any run has this name."""
    stem, _, extension = file.rpartition("/")[2].rpartition(".")
    end = f".{moment.run_id}-{id}-{sha256[:8]}.{extension}"
    return fitting(stem[:100], _hidden(end)) + end


def _hidden(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.part"


# Times of a schedule


class Firing(NamedTuple):
    """The task for one time of a schedule."""

    schedule: str
    due: str  # UTC, ISO 8601, `2026-11-23T07:30:00Z`

    @property
    def path(self) -> str:
        return f"inbox/schedule-{self.schedule}-{re.sub('[:-]', '', self.due)}.yaml"

    @property
    def data(self) -> bytes:
        return yamltext.dump({"kind": "schedule", "schedule": self.schedule, "due": self.due}).encode()


def is_firing(content: object) -> bool:
    """Whether data that a program sends would be a time of a schedule. Only `satchel serve` and people may make one."""
    return isinstance(content, dict) and content.get("kind") == "schedule"


def firing_at(schedule: str, due: datetime) -> Firing:
    return Firing(schedule, f"{due.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")


def firing_of_file(path: str) -> Firing | None:
    """The time of a schedule in the name of a file."""
    match = _FIRED.fullmatch(path)
    try:
        return firing_at(match[1], datetime.fromisoformat(match[2])) if match else None
    except ValueError:
        return None


def was_taken(moment: Moment, firing: Firing) -> bool:
    return any(taken.due == firing.due for taken in moment.fired.get(firing.schedule, ()))


# Sending


def send(store: Store, data: bytes, extension: Literal["md", "yaml"], words: str = "", key: str = "") -> str:
    """Write a file into the inbox, durably, whether or not a process runs the workspace. Returns its path. InvalidFile
    if it could not be taken. Files sort by the time they were sent, and names are unique. With a `key`, the file
    remembers it; the caller has looked for an earlier one."""
    parse(f"{words or 'the task'}.{extension}", data)
    while True:
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        said = f"-{slug(words)}" if slug(words) and not key else ""
        mark = str(archive.mark_of_key(key, data)) if key else os.urandom(3).hex()
        path = f"{INBOX}/{at}Z-{mark}{said}.{extension}"
        with suppress(FileExistsError):
            store.create(path, data)
            return path


def _invalid(path: str, where: str, found: str, expected: str, remedy: str) -> InvalidFile:
    return InvalidFile(path, [Problem(where, found, expected, remedy)])
