"""A workload of a program that holds a workspace: it appends to two logs, and puts, replaces and removes files.

Whatever crashes, each call that has returned counts, the one that had not counts as a whole or not at all, and after
the next opening the files show what the record says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, count
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from satchel.runtime.api import held_workspace, hold_opening
from satchel.runtime.api.held_workspace import Held
from satchel.workspace.store import DiskStore

from . import book
from .book import Book
from .checker import Tree, Violation, journal_is_kept
from .edited import Judge, files_agree
from .memory import ROOT, Memory, files
from .witness import Witness

KIND = "conversation"
DEFINITION = b"format: 1\nrun_id: holds\nkind: conversation\n"


class Append(NamedTuple):
    log: str
    values: tuple[Any, ...]
    key: str | None = None


class Put(NamedTuple):
    path: str
    data: bytes


class Remove(NamedTuple):
    path: str


Operation = Append | Put | Remove


class Begun(NamedTuple):
    """A call has begun."""

    operation: Operation


class Returned(NamedTuple):
    """A call has returned: it counts."""

    operation: Operation


@dataclass
class Contents:
    """What a workspace holds."""

    logs: dict[str, list[Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    keys: set[tuple[str, str | None]] = field(default_factory=set)

    def after(self, operation: Operation) -> Contents:
        new = deepcopy(self)
        match operation:
            case Append(log, values, key) if key is None or (log, key) not in self.keys:
                new.logs.setdefault(log, []).extend(values)
                new.keys.add((log, key))
            case Put(path, data):
                new.files[path] = data
            case Remove(path):
                new.files.pop(path, None)
        return new

    @property
    def told(self) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """The rows, and the hashes of the files."""
        return self.logs, {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}


def _said(*texts: str) -> tuple[Any, ...]:
    return tuple({"role": "user", "content": text} for text in texts)


def _rows(*names: str) -> tuple[Any, ...]:
    return tuple({"tool": name, "of": "x" * 400} for name in names)


_LARGE = (b"one \0" * 15_000, b"two \0" * 16_000)
_PROGRAM: tuple[tuple[Operation, ...], ...] = (
    (
        Append("messages", _said("hello", "hi")),
        Append("calls", _rows("a", "b", "c"), "turn-1"),
        Put("a.txt", b"one\n"),
        Append("calls", _rows("a", "b", "c"), "turn-1"),
        Put("large.bin", _LARGE[0]),
        Put("a.txt", b"two\n"),
        Append("messages", _said("more"), "turn-2"),
        Put("d/e.txt", b"deep\n" * 200),
        Put("large.bin", _LARGE[1]),
        Remove("a.txt"),
    ),
    (
        Append("calls", _rows("d"), "turn-3"),
        Remove("large.bin"),
        Append("messages", _said("the", "last"), "turn-4"),
        Put("a.txt", b"three\n"),
        Put("large.bin", _LARGE[0]),
        Append("calls", _rows("e", "f"), "turn-5"),
    ),
)
_LATER: tuple[Operation, ...] = (Append("calls", _rows("z")), Put("d/e.txt", b"later\n"), Remove("a.txt"))


def live(system: Memory) -> None:
    for operations in _PROGRAM:
        _play(system, operations)


def _play(system: Memory, operations: tuple[Operation, ...]) -> None:
    """As one process does."""
    with _held(system) as held:
        for operation in operations:
            system.acknowledge(Begun(operation))
            match operation:
                case Append(log, values, key):
                    held.append(values, log=log, key=key)
                case Put(path, data):
                    held.put(path, data)
                case Remove(path):
                    held.remove(path)
            system.acknowledge(Returned(operation))


@contextmanager
def _held(system: Memory) -> Iterator[Held]:
    """Without the thread that releases it and writes files late; a look at what people have saved falls due now and
    then."""
    ticks = count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) * 0.1)
    nobody = SimpleNamespace(RLock=nullcontext, Event=mock.Mock, Thread=mock.Mock)
    with (
        mock.patch.object(held_workspace, "threading", nobody),
        mock.patch.object(held_workspace, "time", clock),
        mock.patch.object(hold_opening, "time", clock),
    ):
        held = Held(
            lambda _: DiskStore(ROOT, system), KIND, create=True, take_over=False, adopt=False, wait=0, idle=1e9
        )
        yield held
        held.close()


def finish(system: Memory, witness: Witness) -> None:
    """A later program reads what is there, and goes on."""
    possible = [each.told for each in contents(witness)]
    with _held(system) as held:
        rows = {log: [row.value for row in held.rows(log)] for log in ("messages", "calls")}
        found = {each.path: held.get(each.path) for each in held.list()}
    hashes = {path: hashlib.sha256(file.data).hexdigest() for path, file in found.items() if file is not None}
    if ({log: values for log, values in rows.items() if values}, hashes) not in possible:
        raise Violation(f"the next program reads {rows} and the files {[*hashes]}")
    _play(system, _LATER)
    heard = witness.copy()
    for step in system.log:
        heard.see(step.call)
    HoldJudge().opened({}, files(system.nodes), heard)


def contents(witness: Witness) -> list[Contents]:
    """What may be there: all that has returned; of each process its last call may count, too."""
    found, under_way = [Contents()], None
    for fact in witness.others:
        match fact:
            case Begun(operation):
                if under_way is not None:
                    found += [each.after(under_way) for each in found]
                under_way = operation
            case Returned(operation):
                found, under_way = [each.after(operation) for each in found], None
    if under_way is not None:
        found += [each.after(under_way) for each in found]
    return found


class HoldJudge(Judge):
    def __init__(self) -> None:
        super().__init__({}, {}, lambda tree: None)

    def left(self, before: Tree) -> None:
        """Each file in files/ is whole: its name comes after its content."""
        known = {each.data for each in chain(*_PROGRAM, _LATER) if isinstance(each, Put)}
        for path, data in before.items():
            if path.startswith("files/") and not path.endswith("/") and data not in known:
                raise Violation(f"{path} is torn", path)

    def turned_away(self, before: Tree, after: Tree, error: Exception) -> None:
        raise Violation(f"it was refused: {type(error).__name__}: {error}") from error

    def opened(self, before: Tree, after: Tree, witness: Witness) -> None:
        self.left(after)
        try:
            journal = book.read(after, past=witness.acknowledged)
        except book.Unreadable as error:
            raise Violation(f"the journal was not mended: {error}") from error
        journal_is_kept(journal, witness)
        logs, saved = _recorded(journal)
        hashes = {path: each["sha256"] for path, each in saved.items()}
        if (logs, hashes) not in [each.told for each in contents(witness)]:
            raise Violation(f"calls that have returned don't count, or one in part: {logs}, and the files {[*saved]}")
        if "edited" in journal.kinds or [path for path in after if ".rejected" in path]:
            raise Violation("a crash is taken for a person's edit")
        for path, each in saved.items():
            if blob := each.get("blob"):
                data = after.get(f".satchel/blobs/{blob}")
                if data is None or hashlib.sha256(data).hexdigest() != each["sha256"]:
                    raise Violation(f"the blob of files/{path} is gone or torn", f".satchel/blobs/{blob}")
        shown = {
            path.removeprefix("files/"): hashlib.sha256(data).hexdigest()
            for path, data in after.items()
            if path.startswith("files/") and not path.endswith("/")
        }
        if shown != hashes:
            raise Violation(f"files/ shows {shown}, and the journal says {hashes}", "files")
        if (rows := _shown_rows(after)) != logs:
            raise Violation(f"the logs show {rows}, and the journal says {logs}", "logs")
        files_agree(journal, after)


def _recorded(journal: Book) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    """The rows of each log, and the files, by what the records say."""
    logs: dict[str, list[Any]] = {}
    saved: dict[str, dict[str, Any]] = {}
    waiting: list[tuple[str, Any]] = []
    for record in book.records(journal.lines):
        match record:
            case {"type": "opened"}:
                waiting = []
            case {"type": "message", "log": log, "content": content}:
                waiting.append((log, content))
            case {"type": "message", "role": role, "content": content}:
                waiting.append(("messages", {"role": role, "content": content}))
            case {"type": "scope.committed"}:
                for log, value in waiting:
                    logs.setdefault(log, []).append(value)
                waiting = []
            case {"type": "file.written", "path": path}:
                if (content := record.get("content")) is None:
                    del saved[path]
                else:
                    saved[path] = content
    return logs, saved


def _shown_rows(tree: Tree) -> dict[str, list[Any]]:
    found = {}
    for path, data in tree.items():
        match = re.fullmatch(r"(?:logs/)?([a-z]+)\.jsonl", path)
        if match and data:
            try:
                rows = [json.loads(line) for line in data.splitlines()]
            except ValueError as error:
                raise Violation(f"{path} can't be read: {error}", path) from error
            is_talk = path == "messages.jsonl"
            found[match[1]] = [
                {"role": row["role"], "content": row["content"]} if is_talk else row["content"] for row in rows
            ]
    return found


class Holding:
    """In the shape of the workloads with edits: it has a judge of its own."""

    def files(self) -> dict[str, bytes]:
        return {"workspace.yaml": DEFINITION}

    def judge(self) -> Judge:
        return HoldJudge()

    live, finish = staticmethod(live), staticmethod(finish)
