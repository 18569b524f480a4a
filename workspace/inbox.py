"""The inbox: what a file dropped into `inbox/` is, which of them nobody has taken yet, and where they go afterwards.

`*.md` is text, `*.yaml` is a JSON value; both are tasks, but for a YAML that says `kind: message`. A task is known by
its file's name and SHA-256: another file under an old name is another task, and the same one, come back after a power
failure, is not.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from ..schemas import Problem, short
from . import blobs, yamltext
from .agentmoment import Kept
from .edits import look
from .edits.found import Refusal
from .edits.keeping import reject
from .edits.look import looks_needed, sha
from .errors import InvalidFile
from .moment import Moment, scope_of_task
from .names import slug
from .record import TaskDone, TaskTaken
from .store import Store, Version
from .textfile import decode, place

FOLDER = "inbox"
LIMIT = 1 << 20
"""Bytes of a task. What is larger belongs into a file of its own, which the task can name."""

LOOKS = 12
"""After so many looks, `look.LOOK_AGAIN` apart, a file that still changes is left for later."""

Kind = Literal["task", "message"]

_TEXT = (".md",)
_DATA = (".yaml", ".yml")
_REJECTED = re.compile(r"\.rejected(-[0-9]+)?\.[^./]+\Z")
_SENT = re.compile(r"inbox/[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[0-9a-f]{6}[-.]")
_READ_LIMIT = 1 << 30


class Said(NamedTuple):
    """What a file says: a text, or the value of a YAML, as JSON."""

    kind: Kind
    content: bytes


class Found(NamedTuple):
    """A file that can be taken."""

    path: str
    sha256: str
    said: Said
    data: bytes


# Which files there are


def files(store: Store) -> list[str]:
    """Those that are tasks by their names, in order. One with nothing in it is only about to be written."""
    return [entry.path for entry in store.list(FOLDER) if entry.size and _is_task(entry.path)]


def others(store: Store) -> list[str]:
    """Those that a person may take for tasks, and that are none."""
    return [
        entry.path for entry in store.list(FOLDER)
        if not _is_task(entry.path) and not _REJECTED.search(entry.path) and not _is_temporary(entry.path)
    ]  # fmt: skip


def waiting(store: Store, moment: Moment) -> list[str]:
    """The files that nobody has taken yet."""
    taken = known(moment)
    names = {file for file, _ in taken}
    return [path for path in files(store) if path not in names or (path, _sha(store, path)) not in taken]


def known(moment: Moment) -> set[tuple[str, str]]:
    """The files, with their hashes, that are taken, or done with and perhaps not yet gone."""
    taken = {(task.file, task.sha256) for task in moment.tasks.values()}
    return taken | {(task.file, task.sha256) for task in moment.tasks_done.values()}


def has_work(store: Store, moment: Moment) -> bool:
    """Whether there is something to do for an agent that has come to its end, and that takes tasks."""
    if not moment.tasks_taken:
        return False
    mine = any(not task.handed_to for task in moment.tasks.values())
    return mine or any(_kind(store, path) != "message" for path in waiting(store, moment))


def _is_task(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.lower().endswith((*_TEXT, *_DATA)) and not _is_temporary(path) and not _REJECTED.search(path)


def _is_temporary(path: str) -> bool:
    """What editors and copying programs leave for a moment."""
    name = path.rpartition("/")[2]
    return name.startswith((".", "#", "~")) or name.endswith(("~", ".swp", ".tmp", ".part", ".crdownload"))


def _sha(store: Store, path: str) -> str:
    with suppress(FileNotFoundError, InvalidFile):
        return sha(store.read(path, limit=_READ_LIMIT).data)
    return ""


def _kind(store: Store, path: str) -> Kind | None:
    try:
        return parse(path, store.read(path, limit=LIMIT).data).kind
    except (FileNotFoundError, InvalidFile):
        return None


class Arrivals:
    """Looks at the waiting files until they hold still: somebody may be in the middle of saving one."""

    def __init__(self, store: Store, moment: Moment):
        self._store, self._moment = store, moment
        self._seen: dict[str, tuple[Version | None, float]] = {}  # and since when it is the same
        self.still: list[str] = []  # in order

    def look(self) -> bool:
        """Look once more; whether it is worth looking again."""
        before, self._seen, self.still = self._seen, {}, []
        now = time.monotonic()
        for path in waiting(self._store, self._moment):
            version = self._store.version(path)
            was, since = before.get(path, (None, now))
            since = since if was == version else now
            self._seen[path] = version, since
            if _SENT.match(path) or now - since >= look.LOOK_AGAIN * (looks_needed(self._store, path) - 1):
                self.still.append(path)
        return len(self.still) < len(self._seen)

    def read(self, path: str) -> Found | None:
        """A file that holds still; None if it has changed again, or is gone. InvalidFile if it can't be taken."""
        try:
            data, version = self._store.read(path, limit=LIMIT)
        except FileNotFoundError:
            return None
        if path not in self._seen or version != self._seen[path][0]:
            return None
        return Found(path, sha(data), parse(path, data), data)


def look_until_still(store: Store, moment: Moment) -> Arrivals:
    """For whoever can wait with everything else: at most half a second or so."""
    arrivals = Arrivals(store, moment)
    for _ in range(LOOKS):
        if not arrivals.look():
            break
        time.sleep(look.LOOK_AGAIN)
    return arrivals


# What they say


def parse(path: str, data: bytes) -> Said:
    """InvalidFile says what is wrong with it."""
    if len(data) > LIMIT:
        raise _invalid(path, "the file", "more than 1 MiB", "less", "Put what is large into a file of its own")
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
    if kind != "message":
        remedy = "Call the key otherwise if it is not meant for Satchel"
        raise _invalid(path, document.place(("kind",)), short(kind), "task or message", remedy)
    if rest.keys() != {"text"} or not isinstance(rest["text"], str):
        keys = ", ".join(rest) or "nothing"
        raise _invalid(path, document.place(()), keys, "`text:` beside `kind: message`, and only that", "Write it so")
    return Said("message", msgspec.json.encode(rest["text"]))


def message(text: str) -> bytes:
    """The file of a message."""
    return yamltext.dump({"kind": "message", "text": text}).encode()


def refuse(store: Store, error: InvalidFile) -> str:
    """Move what can't be taken to `NAME.rejected.EXT`, with the reasons beside it. Returns what to say of it."""
    try:
        data, version = store.read(error.path or "", limit=_READ_LIMIT)
    except FileNotFoundError:
        return ""
    kept = reject(store, Refusal(error.path or "", error, data), "and was moved out of the way")
    if store.version(error.path or "") == version:
        store.remove(error.path or "")
    return f"{error}. It is kept as {kept}"


# Taking them, and putting them away


def content(store: Store, task: TaskTaken) -> object:
    return msgspec.json.decode(blobs.fetch(store, Kept(task.content, task.blob)))


def settled(moment: Moment) -> list[TaskDone]:
    """What is left to record of tasks whose scope has committed, if a power failure has cut its group short."""
    root = moment.root
    ended = [
        task for task in moment.tasks.values() if task.scope in root.results and task.scope not in root.scopes
    ]  # fmt: skip
    return [
        done
        for scope in {task.scope: None for task in ended}
        for done in done_with(scope, [task.id for task in ended if task.scope == scope])
    ]


def done_with(scope: str, tasks: Sequence[str]) -> list[TaskDone]:
    """What is recorded right after a scope's commit. The task whose own scope it is comes last: after that nothing is
    known of the scope any more, and a power failure may keep only the first of a group."""
    return [TaskDone(id=id) for id in sorted(tasks, key=lambda id: scope_of_task(id) == scope)]


def released(moment: Moment, scope: str, kept: Sequence[str]) -> list[TaskTaken]:
    """Tasks that an earlier attempt at a scope has taken, and the one that commits has not seen: they are the agent's
    again."""
    return [
        msgspec.structs.replace(task, scope="") for task in moment.tasks.values()
        if scope and task.scope == scope and task.id not in kept
    ]  # fmt: skip


def put_away(store: Store, moment: Moment) -> None:
    """Move the files of all tasks that are done into `inbox/done/`, durably, and those handed on into `inbox/moved/`.
    Called before the next is taken, and before anybody opens the workspace: see `Moment`."""
    for id, task in moment.tasks_done.items():
        if store.version(task.file) is None:
            for folder in (f"{FOLDER}/{task.to}", FOLDER):  # in this order: it must not be in neither
                store.settle(folder)
            continue
        if _sha(store, task.file) != task.sha256:
            continue  # another task by now
        name = task.file.rpartition("/")[2]
        to = f"{FOLDER}/{task.to}/{name}"
        if store.version(to) is not None and _sha(store, to) != task.sha256:
            stem, _, extension = name.rpartition(".")
            to = f"{FOLDER}/{task.to}/{stem}.{id}.{extension}"
        with suppress(FileNotFoundError):
            store.rename(task.file, to)


# Sending


def send(store: Store, data: bytes, extension: Literal["md", "yaml"], words: str = "") -> str:
    """Drop a file, durably; whether or not a process runs the workspace. Returns its path. InvalidFile if it could
    not be taken. Files sort by when they were sent, and no two have one name."""
    parse(f"{words or 'the task'}.{extension}", data)
    while True:
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        said = f"-{slug(words)}" if slug(words) else ""
        path = f"{FOLDER}/{at}Z-{secrets.token_hex(3)}{said}.{extension}"
        with suppress(FileExistsError):
            store.create(path, data)
            return path


def _invalid(path: str, where: str, found: str, expected: str, remedy: str) -> InvalidFile:
    return InvalidFile(path, [Problem(where, found, expected, remedy)])
