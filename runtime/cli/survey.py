"""Every file of a workspace against its schema and against what is recorded of it, for `satchel check`.

Changes nothing. One function a kind of file; each gives what it finds wrong and never stops the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import msgspec

from ... import schemas
from ...schemas import Where, dotted
from ...workspace import blobs, checkpoint, jsontext, lease, messagefile, partial, projection, salvage
from ...workspace.errors import Damaged, InvalidFile, NewerFormat, SatchelError
from ...workspace.messagefile import Row
from ...workspace.moment import Kept, Moment
from ...workspace.record import StepCompleted
from ...workspace.store import Store
from .finding import Finding, of_error, of_problem

_DATA_SCHEMA = ".satchel/schemas/data.json"
_READ_LIMIT = 1 << 30
_BACKUP = "Take the file from a backup"


def files(store: Store, moment: Moment | None) -> Iterator[Finding]:
    """What is wrong with the files, the journal aside. Without a moment, what can be said without one."""
    yield from _guarded(_state, store)
    yield from _guarded(_checkpoints, store)
    yield from _guarded(_lease, store)
    yield from _guarded(_steps, store)
    yield from _guarded(_messages, store)
    yield from _guarded(_recovered, store)
    if moment is not None:
        yield from _guarded(_partials, store, moment)
        yield from _guarded(_outputs, store, moment)
        yield from _guarded(_blobs, store, moment)


def _guarded(look: Callable[..., Iterator[Finding]], *args: Any) -> Iterator[Finding]:
    """A file that can't even be read must not hide what is wrong with the next."""
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
        text = jsontext.decode(store.read(path, limit=_READ_LIMIT).data, path)
        value = jsontext.load(text, path)
    except FileNotFoundError:
        return
    except InvalidFile as error:
        yield from of_error(error)
        return
    for problem in schemas.problems(kind, value, place=jsontext.place_of(text), data_schema=data_schema):
        yield of_problem(path, problem)


def _state(store: Store) -> Iterator[Finding]:
    try:
        text = jsontext.decode(store.read(_DATA_SCHEMA).data, _DATA_SCHEMA)
        own = jsontext.load(text, _DATA_SCHEMA)
    except FileNotFoundError:
        own = None
    except InvalidFile as error:
        yield from of_error(error)
        own = None
    yield from json_file(store, projection.STATE, "state", own if isinstance(own, dict | bool) else None)


def _checkpoints(store: Store) -> Iterator[Finding]:
    for path in checkpoint.paths(store):
        try:
            data = store.read(path, limit=_READ_LIMIT).data
            checkpoint.parse(data)
        except NewerFormat as error:
            yield from of_error(error, path)
        except InvalidFile as error:
            yield from of_error(error)
        except ValueError as error:
            # Harmless while an older one is good, but then it is on somebody's disk that something is wrong.
            yield Finding(path, "", f"it can't be used: {error}", "", "Remove it: an older one or the journal does")
        else:
            yield from _plain("checkpoint", path, msgspec.json.decode(data))


def _lease(store: Store) -> Iterator[Finding]:
    yield from json_file(store, lease.PATH, "lease")


def _steps(store: Store) -> Iterator[Finding]:
    for folder in store.folders(projection.STEPS):
        for entry in store.list(folder):
            yield from json_file(store, entry.path, "step")


def _partials(store: Store, moment: Moment) -> Iterator[Finding]:
    for leftover in salvage.leftovers(store, moment):
        if leftover.head is not None:
            yield from _plain("partial", leftover.path, asdict(leftover.head))


def _recovered(store: Store) -> Iterator[Finding]:
    for folder in store.folders(partial.RECOVERED):
        for entry in store.list(folder):
            if entry.path.endswith("-damaged.md"):
                continue  # kept for people; it never had a head
            parsed = partial.parse_recovered(store.read(entry.path, limit=_READ_LIMIT).data)
            if parsed is None:
                remedy = "Move it away; the next attempt then begins its answer anew"
                yield Finding(entry.path, "line 1", "no front matter", "what marks a recovered text", remedy)
            else:
                yield from _plain("recovered", entry.path, asdict(parsed[0]))


def _messages(store: Store) -> Iterator[Finding]:
    path = messagefile.PATH
    try:
        data = store.read(path, limit=_READ_LIMIT).data
    except FileNotFoundError:
        return
    for number, row in enumerate(data.split(b"\n")[:-1], 1):  # a last line without an end is what a crash leaves
        try:
            msgspec.json.decode(row, type=Row)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            remedy = "Move the file away; it is rebuilt from the journal"
            yield Finding(path, f"line {number}", f"what is not a message ({error})", "one message", remedy)
            return


def _outputs(store: Store, moment: Moment) -> Iterator[Finding]:
    at_work = len(moment.scopes) > 1  # it may have written the file and not have committed yet
    for name, output in moment.outputs.items():
        path = f"outputs/{name}"
        try:
            data = store.read(path, limit=_READ_LIMIT).data
        except FileNotFoundError:
            yield Finding(path, "", "no such file", "the output that the run has made", _BACKUP)
            continue
        if not at_work and hashlib.sha256(data).hexdigest() != output.sha256:
            found = f"{len(data):,} bytes that are not those the run has written"
            yield Finding(path, "", found, f"its {output.bytes:,} bytes", "If it was edited on purpose, ignore this")


def _blobs(store: Store, moment: Moment) -> Iterator[Finding]:
    kept_results: list[Kept | StepCompleted] = [*moment.results.values()]
    kept_results += (step for scope in moment.scopes.values() for step in scope.done.values())
    for kept in kept_results:
        if kept.blob:
            try:
                blobs.fetch(store, kept)
            except Damaged as error:
                yield from of_error(error)


def _plain(kind: str, file: str, value: Any) -> Iterator[Finding]:
    place: Callable[[Where], str] = dotted
    for problem in schemas.problems(kind, value, place=place):
        yield of_problem(file, problem)
