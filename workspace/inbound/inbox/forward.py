"""Hand waiting tasks on to another workspace or to a folder: none is lost, and none is handed on twice.

The copy first gets a hidden name in the target, which no run takes. Then a record says that it will be handed on. Then
it gets its own name, and a second record says so. After a crash in between, the hidden name tells whether it was handed
on, whatever has happened to the file since.
"""

from __future__ import annotations

from contextlib import suppress

from ...base import DEFINITION, InvalidFile, SatchelError, UsageError, fitting, urls
from ...formats import Definition
from ...inspect import Report
from ...journal import Journal
from ...journal.records import TaskDone, TaskTaken
from ...state import Moment
from ...store import LARGE_LIMIT, Store, open_store
from ..edits.findings import sha
from . import archive, inbox
from .archive import FOLDER
from .inbox import InboxFile


def redirect(store: Store, moment: Moment, journal: Journal, definition: Definition, report: Report) -> None:
    """Hand the waiting tasks on to the place in `redirect_to:`, if there is one. Errors at that place are reported, and
    the tasks stay. Messages stay too, because they are for this agent. Only for the process that has the workspace
    open."""
    if not definition.redirect_to:
        return
    handed = 0
    try:
        target, folder = _target(store, definition.redirect_to)
        arrivals = inbox.look_until_settled(store, moment)
        for path in arrivals.offered:
            try:
                found = arrivals.read(path)
            except InvalidFile:
                continue  # the agent's own start refuses it
            if found is not None and found.said.kind == "task":
                _hand_over(store, moment, journal, found, target, folder)
                handed += 1
    except _TargetFailed as error:
        report.add("wanted", f"tasks stay in {FOLDER}/, because they can't be forwarded: {error}")
    if handed:
        word = "task was" if handed == 1 else "tasks were"
        report.add("done", f"{handed} {word} forwarded to {definition.redirect_to}")


def finish(store: Store, moment: Moment, journal: Journal, definition: Definition, report: Report) -> None:
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
        if target.url == store.url or target.url == f"{store.url}/{FOLDER}":
            raise UsageError("is this run's own inbox", path=redirect_to, remedy="name another one in redirect_to")
        return target, f"{FOLDER}/" if target.version(DEFINITION) is not None else ""
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
    archive.put_away(store, moment)
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
    archive.put_away(store, moment)


def _name(moment: Moment, id: str, sha256: str, file: str) -> str:
    """The name of a task's file at the target: no other task of any run has this name."""
    stem, _, extension = file.rpartition("/")[2].rpartition(".")
    end = f".{moment.run_id}-{id}-{sha256[:8]}.{extension}"
    return fitting(stem[:100], _hidden(end)) + end


def _hidden(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.part"
