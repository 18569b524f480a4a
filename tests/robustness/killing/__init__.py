"""Kills runs by SIGKILL at seeded moments: what they leave must be what an uninterrupted one leaves.

A moment is the n-th call that a process makes to the disk, or the time just before or after what an agent does outside
(`tick`): so every gap between two writes is one, and a seed finds it again. The runs are forks of a process that has
imported everything, because importing takes longer than running.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm

from satchel import run
from satchel.runtime.agent.declaration import Agent
from satchel.workspace.store import DiskStore, Syscalls

SUBJECTS = ("items", "parallel", "named", "tree", "pipelined", "talking", "inbox", "interrupted")
_CALLS = ("write", "sync", "sync_data", "sync_folder", "rename", "link", "unlink", "open_new", "mkdir", "rmdir")
_STATUS = {"completed": 0, "paused": 3}
_PATIENCE = 600.0

tick: Callable[[], None] = lambda: None  # noqa: E731
"""Counts one moment, in a process that is to be killed."""


@dataclass(frozen=True)
class Subject:
    """What is run. Its functions take the workspace, and a path next to it for what the agent does outside."""

    agent: Callable[[Path], Agent[Any]]
    result: Callable[[Path, Path], Any]
    """All that must not depend on when the run was killed."""

    prepare: Callable[[Path], None] = lambda folder: None
    """Completes a new workspace."""

    wrong: Callable[[Path, Path], str] = lambda folder, outside: ""
    """What a process has left that must never be, in words."""

    starts: int = 1
    """How often an uninterrupted run has to be started until it is completed."""


class Wrong(Exception):
    pass


def explore(subject: str, folder: Path, *words: object, needs: str = "sys") -> None:
    """For tests: call `seeded` or `every` in a process of its own, as a fork needs one without threads. `needs` names a
    package that is slow to import."""
    places = [str(Path(__file__).parents[up]) for up in (1, 2)]
    start = f"import sys, {needs}; sys.path[:0] = {places}; import killing; killing.main()"
    command = [sys.executable, "-c", start, subject, str(folder), *map(str, words)]
    done = warm.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    print(done.stdout, done.stderr)  # names the seed or the moment; shown when the test fails
    assert done.returncode == 0


def main() -> None:
    name, folder, how, *numbers = sys.argv[1:]
    module, _, kind = name.partition(":")
    found = __import__(f"killing.{module}", fromlist=["SUBJECT"])
    subject: Subject = found.SUBJECTS[kind] if kind else found.SUBJECT
    {"seeded": seeded, "every": every}[how](subject, Path(folder), *map(int, numbers))


def seeded(subject: Subject, base: Path, seed: int, rounds: int) -> None:
    """One to three kills a round, at moments that the seed chooses. A round without a kill is played again: how often a
    projection is written depends on how busy the machine is, and so does the number of moments."""
    expected, moments = _whole(subject, base)
    chance, kills, left = random.Random(seed), 0, rounds
    for _ in range(3 * rounds):
        chosen = [chance.randint(1, moments) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        came, reached = _compare(subject, base, chosen, expected)
        kills += came
        moments = min(moments, reached)
        left -= came > 0
        if not left:
            break
    print(f"{kills} kills in {rounds} rounds at moments 1 to {moments}, seed {seed}")
    assert not left, "the moments must lie inside the run"


def every(subject: Subject, base: Path, part: int, parts: int) -> None:
    """One kill a round, at every moment of one part of all."""
    expected, moments = _whole(subject, base)
    chosen = range(1 + part, moments + 1, parts)
    kills = sum(_compare(subject, base, [moment], expected)[0] for moment in chosen)
    print(f"{kills} kills at {len(chosen)} of {moments} moments, part {part} of {parts}")
    assert moments > 100 and kills >= len(chosen) * 0.75, "the moments must lie inside the run"


def _whole(subject: Subject, base: Path) -> tuple[Any, int]:
    """What an uninterrupted run leaves, and how many moments its first process has."""
    folder, outside = _new(subject, base / "whole")
    codes, counts = zip(*_until_completed(subject, folder, outside), strict=True)
    assert len(codes) == subject.starts, codes
    return subject.result(folder, outside), counts[0]


def _compare(subject: Subject, base: Path, moments: list[int], expected: Any) -> tuple[int, int]:
    """Run it with kills at these moments, and once more to the end. Returns how many came, and how many moments the
    first process had, if it was not killed (else a number above all)."""
    folder, outside = _new(subject, base / "killed")
    kills, reached = 0, sys.maxsize
    try:
        for number, moment in enumerate(moments):
            code, count = _child(subject, folder, outside, moment)
            if number == 0 and code != -signal.SIGKILL:
                reached = count
            if code not in (-signal.SIGKILL, *_STATUS.values()):
                raise Wrong(f"exit code {code}")
            kills += code == -signal.SIGKILL
        [*_until_completed(subject, folder, outside)]
        found = subject.result(folder, outside)
        if found != expected:
            raise Wrong(_difference(expected, found))
    except Wrong as wrong:
        raise SystemExit(f"killed at {moments}: {wrong}; see {folder}") from None
    shutil.rmtree(folder.parent)
    return kills, reached


def _difference(expected: Any, found: Any) -> str:
    if not isinstance(expected, dict):
        return f"expected {expected}, found {found}"
    return str({key: (value, found[key]) for key, value in expected.items() if found[key] != value})


def _new(subject: Subject, base: Path) -> tuple[Path, Path]:
    folder = base / "run"
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: killed-1\nagent: agent.py:main\n")
    subject.prepare(folder)
    return folder, base / "outside"


def _until_completed(subject: Subject, folder: Path, outside: Path) -> Iterable[tuple[int, int]]:
    code = 0
    for _ in range(subject.starts + 3):
        is_paused = code == _STATUS["paused"]  # it may be stuck: three kills with nothing new on record between them
        code, count = _child(subject, folder, outside, 0, wake=is_paused)
        yield code, count
        if code == 0:
            return
        if code not in _STATUS.values():
            break
    raise Wrong(f"it is not completed: exit code {code}")


def _child(subject: Subject, folder: Path, outside: Path, moment: int, *, wake: bool = False) -> tuple[int, int]:
    """Run it in a fork until it stops, or until it is killed at `moment`: its exit code, or minus the signal, and how
    many moments it has had if it stopped."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            count = _count_to(moment)
            outcome = run(DiskStore(folder), subject.agent(outside), wake=wake)
            os.write(theirs, b"%d" % count[0])
            if outcome.error:
                raise outcome.error
            code = _STATUS.get(outcome.status, 71)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(theirs)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(ours, "rb") as pipe:
        count = int(pipe.read() or 0)
    if wrong := subject.wrong(folder, outside):
        raise Wrong(wrong)
    return code, count


def _count_to(moment: int) -> list[int]:
    """From now on every moment of this process counts, and the one of this number is its last. Returns the count."""
    global tick
    count = [0]

    def counted() -> None:
        count[0] += 1
        if count[0] == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def call_of(real: Any) -> Any:
        def call(*args: Any) -> Any:
            counted()
            return real(*args)

        return call

    for name in _CALLS:
        setattr(Syscalls, name, call_of(getattr(Syscalls, name)))
    tick = counted
    return count
