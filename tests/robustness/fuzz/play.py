"""Plays one case: lays out a changed workspace, lets commands look at it, and says what they should not have done."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import click
from click.testing import CliRunner
from jsonschema.protocols import Validator

from satchel.runtime.cli import group
from satchel.runtime.cli.commands import pauses
from satchel.runtime.status import place
from satchel.runtime.supervision import kill
from satchel.schemas import Problem, Where, validator
from satchel.workspace.base.errors import SatchelError
from satchel.workspace.formats import YamlDocument, yamltext

from . import bases, mutations
from .bases import Files

CPU_LIMIT, WALL_LIMIT = 5.0, 60.0  # seconds of a command
MEMORY_LIMIT = 500 << 20
_REMEMBERED = 5_000
LOOKS = (
    ("status",),
    ("status", "--json"),
    ("check",),
    ("check", "--json"),
    ("log",),
    ("log", "--json"),
    ("ls",),
    ("ls", "--json"),
    ("merge",),
    ("answer",),
    ("status",),
    ("status", "--json"),
    ("check",),
    ("show",),
    ("show", "--json", "^2"),
    ("show", "9"),
    ("steps",),
    ("steps", "--json"),
    ("diff", "9"),
    ("diff", "--json", "^1"),
    ("blame", "state.json"),
    ("blame", "--json", "todo.md"),
    ("prune", "--dry-run"),
)
"""They change nothing, not even in the workspace."""
WRITES = (
    ("recover",),
    ("recover", "--json"),
    ("pause", "--json"),
    ("cancel", "--yes"),
    ("stop",),
    ("send", "x"),
    ("recover",),
    ("merge", "--use", "theirs"),
    ("merge", "--use", "ours"),
    ("answer", "d1", "redo"),
    ("new",),
    ("copy",),
)
"""They run nothing of the agent, and leave alone what is outside."""
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Hang(BaseException):
    """The command took too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong. Two of the same `kind` most likely have one cause."""

    number: int
    kind: str
    command: str
    detail: str
    done: tuple[str, ...]

    def __str__(self) -> str:
        changed = "; ".join(self.done)
        return f"case {self.number}: {self.kind}\n  command: {self.command}\n  changed: {changed}\n{self.detail}"


@dataclass(slots=True)
class Player:
    """Plays the cases of one seed in `folder`, one after another."""

    seed: int
    folder: Path
    bases: list[Files] = field(default_factory=list)
    commands: int = 0

    def play(self, number: int) -> list[Finding]:
        """The case `number`: the same for equal seeds, whatever was played before. Its files stay until the next."""
        random = Random(f"{self.seed}/{number}")
        files = dict(random.choice(self.bases))
        done = mutations.mutate(files, random)
        workspace = self._lay_out(files)
        if random.random() < 0.06:
            done.append(mutations.spoil(workspace, random))
        outside = _picture(self.folder, workspace)
        chosen = [random.choice(LOOKS), *random.sample(WRITES, random.random() < 0.4)]
        found: list[Finding] = []
        for words in chosen:
            looks = words in LOOKS
            before = _picture(workspace) if looks else None
            self.commands += 1
            told = [*complaints(words, workspace)]
            if _picture(self.folder, workspace) != outside:
                told.append(("it changed something outside", _difference(outside, _picture(self.folder, workspace))))
            if before is not None and (after := _picture(workspace)) != before:
                told.append((f"{words[0]} changed the workspace", _difference(before, after)))
            found += [Finding(number, kind, " ".join(words), detail, tuple(done)) for kind, detail in told]
        return found

    def _lay_out(self, files: Files) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        workspace = self.folder / "w"
        bases.lay_out(self.folder / "outside", {"secret.txt": b"secret", "workspace.yaml": b"format: 1\n"})
        for path, data in files.items():
            try:
                bases.lay_out(workspace, {path: data})
            except (OSError, ValueError):
                continue  # no name for a file, or a folder is in its place
        return workspace


def complaints(words: Sequence[str], workspace: Path) -> Iterator[tuple[str, str]]:
    """What is wrong with how a command about `workspace` ends: the kind of thing, and more about it."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    place = [str(workspace.parent if words[0] == "ls" else workspace)]
    place += [str(workspace.parent / "made")] if words[0] in ("new", "copy") else []
    errors: list[BaseException] = []
    try:
        with _watched(errors), _limited():
            result = CliRunner().invoke(group.group, [words[0], *place, *words[1:]], input="n\n", color=True)
    except Hang as hang:
        yield f"hang in {_place(hang)}", "".join(traceback.format_exception(hang)[-12:])
        return
    except BaseException as other:  # what CliRunner does not catch
        yield f"{type(other).__name__} in {_place(other)}", "".join(traceback.format_exception(other))
        return
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        errors.append(result.exception)
    for error in errors:
        yield f"{type(error).__name__} in {_place(error)}", "".join(traceback.format_exception(error)[-12:])
    output = result.stdout + result.stderr
    if hidden := re.search(r"can't be read \((\w+): ", output):
        yield f"{hidden[0]}", output[-2000:]
    if (steering := _STEERS.search(output)) is not None:
        yield f"{steering[0]!r} in the output", repr(output[max(0, steering.start() - 200) : steering.end() + 50])
    if result.exit_code not in range(9):
        yield f"exit code {result.exit_code}", output[-500:]
    if "--json" in words and result.stdout.strip():
        yield from _unreadable(result.stdout, is_log=words[0] == "log")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * _RSS_UNIT
    if grown > MEMORY_LIMIT:
        yield "memory", f"{grown >> 20} MiB more"


def _unreadable(text: str, *, is_log: bool) -> Iterator[tuple[str, str]]:
    """Why a program could not read it."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    for part in text.splitlines() if is_log else [text]:
        try:
            json.loads(part, parse_int=len, parse_float=len, parse_constant=refuse)
        except RecursionError:
            continue  # Python's own limit, and the file's own depth
        except ValueError as error:
            yield f"no JSON: {str(error)[:40]}", part[:500]


@contextmanager
def _watched(errors: list[BaseException]) -> Iterator[None]:
    """Collects errors that are told as Satchel's own, and lets nothing be killed."""

    def tell(error: Exception, *, with_traceback: bool) -> int:
        if not isinstance(error, SatchelError | click.ClickException | click.Abort | OSError):
            errors.append(error)
        return real_tell(error, with_traceback=with_traceback)

    def signal_if(number: signal.Signals, pid: int, started: str) -> bool:
        if number != 0 and pid != 0:
            errors.append(AssertionError(f"signal {number} to process {pid}"))
        return False

    real_tell, real_signal = group.tell_error, kill.signal_if
    real_style = click.style
    click.style = lambda text, **_: str(text)  # with colours on, whatever steers the terminal is of the files
    group.tell_error = pauses.tell_error = tell  # type: ignore[attr-defined]
    kill.signal_if = signal_if
    real_sleep, place.sleep = place.sleep, lambda seconds: None  # type: ignore[assignment]
    try:
        with bases.unhurried():
            yield
    finally:
        group.tell_error = pauses.tell_error = real_tell  # type: ignore[attr-defined]
        kill.signal_if = real_signal
        place.sleep = real_sleep
        click.style = real_style


@contextmanager
def remembering() -> Iterator[None]:
    """In the body nothing is validated or read as YAML a second time that was found to be in order before: of a case
    most is as it was in all others, and this is what takes the time."""
    valid: set[tuple[int, str]] = set()
    documents: dict[str, YamlDocument] = {}
    real_check, real_load = validator.check, yamltext.load

    def check(checker: Validator, value: Any, place: Callable[[Where], str]) -> list[Problem]:
        if type(checker) is not validator._Discriminating:  # a stranger's
            return real_check(checker, value, place)
        try:
            key = id(checker.schema), repr(value)  # ours are never freed
        except (ValueError, RecursionError):  # too large a number, or too deep
            return real_check(checker, value, place)
        if key in valid:
            return []
        found = real_check(checker, value, place)
        if not found and len(valid) < _REMEMBERED:
            valid.add(key)
        return found

    def load(text: str, path: str) -> YamlDocument:
        if text not in documents:
            document = real_load(text, path)
            if len(documents) == _REMEMBERED or len(text) > 10_000:
                return document
            documents[text] = document
        return documents[text]

    validator.check, yamltext.load = check, load
    try:
        yield
    finally:
        validator.check, yamltext.load = real_check, real_load


@contextmanager
def _limited() -> Iterator[None]:
    """Raises Hang in the body, once it has used up its time. In the main thread only."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"signal {number}")

    before = signal.signal(signal.SIGPROF, stop), signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def _place(error: BaseException) -> str:
    """The innermost line of Satchel's own that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        each
        for each in frames
        if re.search(r"/(workspace|runtime|schemas)/", each.filename) and "site-packages" not in each.filename
    ]
    last = (ours or frames)[-1] if frames else None
    return f"{os.sep.join(Path(last.filename).parts[-3:])}:{last.name}" if last else "?"


def _picture(folder: Path, without: Path | None = None) -> dict[str, object]:
    """Everything in a folder, links not followed."""
    found: dict[str, object] = {}
    for above, folders, files in os.walk(folder):
        if without is not None and os.path.samefile(above, folder):
            folders[:] = [each for each in folders if each not in (without.name, "made")]
        for name in (*folders, *files):
            status = os.lstat(path := os.path.join(above, name))
            found[path] = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns if name in files else 0)
    return found


def _difference(before: dict[str, object], after: dict[str, object]) -> str:
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return f"  {sorted(changed)[:8]}"
