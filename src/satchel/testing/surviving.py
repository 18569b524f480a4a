"""Crash a run at every point, resume it, and compare how it ends with a run that nothing stopped.

A crash is in this process: from one record on, nothing reaches the run's folder any more. Each point has a name, so
that a test can repeat it alone.
"""

from __future__ import annotations

import difflib
import errno
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..runtime.agent import Agent, Partial
from ..runtime.api import open as open_run
from ..runtime.engine import OpenCall
from ..runtime.execution import Outcome, run
from ..runtime.live import observed_by
from ..workspace.base import SatchelError, StorageFailed, UsageError, arguments, read_markdown
from ..workspace.journal import FOLDER, Key, StepCompleted
from ..workspace.state import SLEEP
from ..workspace.store import DiskStore, Syscalls
from .scratch import DEFINITION


class Unsynced(Syscalls):
    """The calls of a disk without its syncs: what crashes here is a process, not the machine."""

    def sync(self, fd: int) -> None: ...

    def sync_data(self, fd: int) -> None: ...

    def sync_folder(self, path: str) -> None: ...


class Crashing(Unsynced):
    """The calls of a disk that takes so many records of the journal, or all until `has_crashed` is set, and then no
    change any more. The next process finds what it would find if this one had been killed at that moment."""

    def __init__(self, most: int | None = None):
        self._most = most
        self.records = 0  # that it has taken
        self._segments: set[int] = set()  # open files of the journal
        self.has_crashed = False

    def _check(self) -> None:
        if self.has_crashed:
            raise OSError(errno.EIO, "the test has stopped the process here")

    def open_new(self, path: str) -> int:
        self._check()
        fd = super().open_new(path)
        if Path(path).parent.name == FOLDER:
            self._segments.add(fd)
        return fd

    def open_append(self, path: str) -> int:
        self._check()
        return super().open_append(path)

    def write(self, fd: int, data: bytes) -> None:
        self._check()
        if fd in self._segments:
            lines = data.splitlines(keepends=True)
            taken = lines if self._most is None else lines[: self._most - self.records]
            data = b"".join(taken)
            self.records += len(taken)
            if len(taken) < len(lines):
                self.has_crashed = True
        super().write(fd, data)
        self._check()

    def close(self, fd: int) -> None:
        self._segments.discard(fd)
        super().close(fd)

    def rename(self, source: str, target: str) -> None:
        self._check()
        super().rename(source, target)

    def exchange(self, one: str, other: str) -> bool:
        self._check()
        return super().exchange(one, other)

    def link(self, source: str, target: str) -> None:
        self._check()
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self._check()
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._check()
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._check()
        super().rmdir(path)


def crash_after(records: int, folder: str | os.PathLike[str], agent: Agent | None = None, **options: Any) -> Outcome:
    """Run an agent, crash it when it has written `records` records, resume it, and return how it stopped then.
    `options` are those of `satchel.run`. UsageError if the run stops before that record.

    The crash is in this process: threads and tasks of the agent are not killed, but nothing that they do is recorded.
    Nothing is synced, so this tells nothing about power failures. In a running event loop call it in a thread
    (`asyncio.to_thread`).
    """
    arguments.no_loop("crash_after", "call `await asyncio.to_thread(crash_after, records, folder, agent)` there")
    if records < 1:
        raise UsageError(f"a run can't crash after {records} records", remedy="give 1 or more")
    if ended_before(Crashing(records), folder, agent, **options) is not None:
        raise UsageError(f"the run stopped before its record {records}", path=os.fspath(folder))
    return resumed(folder, agent, **options)


def ended_before(
    calls: Crashing, folder: str | os.PathLike[str], agent: Agent | None, **options: Any
) -> Outcome | None:
    """Run it up to its crash. The outcome, if the crash did not come."""
    try:
        outcome = run(DiskStore(folder, calls), agent, **options)
    except StorageFailed:
        if not calls.has_crashed:
            raise
        return None
    return None if calls.has_crashed else outcome


def resumed(folder: str | os.PathLike[str], agent: Agent | None, **options: Any) -> Outcome:
    return run(DiskStore(folder, Unsynced()), agent, **options)


class CallPlace(NamedTuple):
    """What identifies a call in its run."""

    agent: str
    scope: str
    key: Key


def place_of(call: OpenCall) -> CallPlace:
    return CallPlace(call.scope.agent.path, call.scope.key, call.key)


class Probe:
    """Observes the processes of one run, and crashes the first of them at the point `at`. `points` are those that it
    came to before: each has a kind and a name, which is the same in each run of the same agent."""

    def __init__(self, at: str = ""):
        kind, _, number = at.partition(" ")
        self._at = at
        self.disk = Crashing(int(number) if kind == "record" and number.isdecimal() else None)
        self._points: list[tuple[str, str]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self.returns: Counter[CallPlace] = Counter()  # of effects
        self.idempotent: set[CallPlace] = set()
        self.streamed: set[CallPlace] = set()
        self.contradicted: dict[
            CallPlace, str
        ] = {}  # effects that had returned, although their `verify` raises NotDone

    @property
    def points(self) -> list[tuple[str, str]]:
        # Records come last, since time decides how much of a streamed answer is in its file behind one: the first point
        # that fails can be repeated. No crash behind the last record: there the run is over.
        return [*self._points, *(("record", f"record {number}") for number in range(1, self.disk.records))]

    def wrote(self, call: OpenCall, out: Partial) -> None:
        self.streamed.add(place_of(call))
        if self._is_here("token", f" of {call.words}"):
            out.file.write()  # so that all of it is found
            self.disk.has_crashed = True

    def returned(self, call: OpenCall) -> None:
        place = place_of(call)
        self.returns[place] += 1
        if call.step.idempotent:
            self.idempotent.add(place)
        if self._is_here("return", f" of {call.words}"):
            self.disk.has_crashed = True

    def denied(self, call: OpenCall) -> None:
        if self.returns[place_of(call)]:
            self.contradicted[place_of(call)] = call.words

    def waits(self, call: OpenCall) -> None:
        if self._is_here("sleep" if call.key[0] == SLEEP else "question", ""):
            self.disk.has_crashed = True

    def _is_here(self, kind: str, of: str) -> bool:
        if self.disk.has_crashed:
            return False
        self._counts[kind, of] += 1
        name = f"{kind} {self._counts[kind, of]}{of}"
        self._points.append((kind, name))
        return name == self._at


class Survived(NamedTuple):
    """What a run has survived."""

    crashes: int
    answered: int
    """Effects in doubt that were answered `done` for a person."""
    asked: int = 0
    """Ends at which changed code had Satchel ask a person about an effect."""
    left_out: int = 0
    """Points that the sample has left out."""
    missed: tuple[str, ...] = ()
    """Points to which the run did not come again."""


def assert_survives(
    agent: Agent | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    changes: Sequence[Agent] = (),
    crash: str | None = None,
    at_most: int = 200,
    seed: int = 0,
    **options: Any,
) -> Survived:
    """Run an agent without a crash. Then crash it at each point, each time in a new copy of the folder; resume it and
    compare. The points are: behind each record, behind each write to a `Partial`, between the return of an effect and
    its record, in a sleep, and at a question.

    AssertionError, naming the point, if one of these ends in another way: status, result, the data in state.json, the
    plan, the questions to people, a file in outputs/, a streamed answer, or how often each effect has happened. Also if
    a `verify` raises NotDone for an effect that had returned. An error that the agent raises without a crash is raised.

    `folder` is a workspace that has not begun; it is not changed. Without one, a workspace without settings is made.
    Without `agent`, it is the one that workspace.yaml names. With `changes`, each of these agents in turn continues the
    crashed run instead of `agent`. It must end with the status and the result that it has alone, and no effect may
    happen more often than with either code alone, unless a person is asked. `crash` is the name of a point, from an
    AssertionError: only that one is tried. Of each kind of points `at_most` are tried, drawn with `seed` if there are
    more. `options` are those of `satchel.run`.

    An effect whose record was lost has happened, and is in doubt. If its `verify` can't say so, this answers `done`,
    with the result that it had without a crash. Not guaranteed: that your effects can be repeated in your test's world.
    In a running event loop call it in a thread (`asyncio.to_thread`).
    """
    arguments.no_loop("assert_survives", "call `await asyncio.to_thread(assert_survives, agent)` there")
    if isinstance(changes, Agent):
        raise UsageError("`changes` of assert_survives() is one agent", remedy="give a list: `changes=[new_agent]`")
    if at_most < 1:
        raise UsageError(f"assert_survives() can't try {at_most} points", remedy="give 1 or more")
    with tempfile.TemporaryDirectory(prefix="satchel-test-") as made:
        place = Path(made)
        template = _template(place, folder)
        before = _whole(agent, template, place / "whole", options)
        afters = [_whole(each, template, place / "whole", options) for each in changes] or [before]
        points = _chosen(before.points, crash, at_most, seed)
        answered = asked = crashes = 0
        missed: list[str] = []
        for point in points:
            for number, after in enumerate(afters):
                copy, probe = _copy(template, place / "crashed"), Probe(point)
                with observed_by(probe):
                    if ended_before(probe.disk, copy, agent, **options) is not None:
                        missed.append(point)
                        break
                    crashes += 1
                    end = _Trial(copy, probe, before, after, options).resumed()
                answered += end.answered
                asked += end.asked
                if end.differences:
                    by = f", resumed by changes[{number}]" if changes else ""
                    repeat = f"to repeat this one alone: assert_survives(..., crash={point!r})"
                    raise AssertionError("\n".join([f"after a crash at {point}{by}:", *end.differences, repeat]))
        return Survived(
            crashes, answered, asked, len(before.points) - len(points) if crash is None else 0, tuple(missed)
        )


class _Whole(NamedTuple):
    """A run that nothing stopped."""

    agent: Agent | None
    points: list[tuple[str, str]]
    seen: dict[str, Any]
    answers: dict[CallPlace, Any]
    effects: Counter[CallPlace]
    results: dict[CallPlace, Any]


def _whole(agent: Agent | None, template: Path, place: Path, options: dict[str, Any]) -> _Whole:
    folder, probe = _copy(template, place), Probe()
    with observed_by(probe):
        outcome = ended_before(probe.disk, folder, agent, **options)
    assert outcome is not None
    if outcome.error is not None:
        raise outcome.error
    completed = _completed(folder)
    effects = _effects(completed, probe)
    return _Whole(agent, probe.points, _seen(folder, outcome), _answers(completed, probe), effects, _results(completed))


def _chosen(points: list[tuple[str, str]], crash: str | None, at_most: int, seed: int) -> list[str]:
    """The names of the points to try, in their order."""
    names = [name for _, name in points]
    if crash is not None:
        if crash not in names:
            near = difflib.get_close_matches(crash, names, n=1, cutoff=0) or ["none"]
            raise UsageError(f"the run does not come to {crash!r}", why=f"the nearest of its points is {near[0]!r}")
        return [crash]
    drawn = random.Random(seed)
    chosen: set[str] = set()
    for kind in dict.fromkeys(kind for kind, _ in points):
        of_kind = [name for each, name in points if each == kind]
        chosen.update(of_kind if len(of_kind) <= at_most else drawn.sample(of_kind, at_most))
    return [name for name in names if name in chosen]


def _template(place: Path, folder: str | os.PathLike[str] | None) -> Path:
    if folder is not None:
        if not (Path(folder) / "workspace.yaml").is_file():
            raise UsageError(f"{os.fspath(folder)!r} is not a workspace", why="it has no workspace.yaml")
        return Path(folder)
    made = place / "template"
    made.mkdir()
    (made / "workspace.yaml").write_text(DEFINITION)
    return made


def _copy(template: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(template, to))


class _End(NamedTuple):
    answered: int
    asked: int
    differences: list[str]


class _Trial:
    """A crashed run, from its resumption to its end."""

    def __init__(self, folder: Path, probe: Probe, before: _Whole, after: _Whole, options: dict[str, Any]):
        self._folder, self._probe, self._options = folder, probe, options
        self._before, self._after, self._is_changed = before, after, after is not before

    def resumed(self) -> _End:
        if self._is_changed and open_run(self._folder).status().state == "completed":
            return _End(0, 0, [])  # the changed code has nothing to do
        try:
            outcome, answered = self._outcome()
        except SatchelError as error:
            return _End(0, 0, [f"it can't be resumed: {error}"])
        completed = _completed(self._folder)
        effects = _effects(completed, self._probe)
        differences = [
            f"{words}: it had returned, but its verify raises NotDone" for words in self._probe.contradicted.values()
        ]
        if not self._is_changed:
            differences += _differences(self._after.seen, _seen(self._folder, outcome))
            answers = _answers(completed, self._probe)
            both = [place for place in self._after.answers if place in answers]
            differences += _differences(
                {f"the answer of {place.key[0]}": self._after.answers[place] for place in both},
                {f"the answer of {place.key[0]}": answers[place] for place in both},
            )
            differences += _differences(_counts(self._after.effects), _counts(effects))
            return _End(answered, 0, differences)
        if any(each.why != "unknown_outcome" for each in outcome.doubts):
            return _End(answered, 1, differences)
        ends = ("the status", "the error", "the result")
        seen = _seen(self._folder, outcome)
        differences += _differences({end: self._after.seen[end] for end in ends}, {end: seen[end] for end in ends})
        return _End(answered, 0, differences + self._doubled(effects))

    def _outcome(self) -> tuple[Outcome, int]:
        """The outcome, and how many effects were in doubt on the way."""
        results = {**self._after.results, **self._before.results}
        answered: set[str] = set()
        while True:
            outcome = resumed(self._folder, self._after.agent, **self._options)
            known = {
                each.id: CallPlace(each.agent, each.scope, (each.step, each.args, each.n))
                for each in outcome.doubts
                if each.why == "unknown_outcome"
            }
            new = {id: results[place] for id, place in known.items() if id not in answered and place in results}
            if not new:
                return outcome, len(answered)
            for id, result in new.items():
                open_run(self._folder).answer("done", id, result=result, by="the test")
            answered |= new.keys()

    def _doubled(self, effects: Counter[CallPlace]) -> list[str]:
        """Calls that have happened more often, and scopes that have done more, than with either code alone."""
        differences = []
        for kind in (_call, _scope):
            found, before, after = (
                _of_kind(kind, each) for each in (effects, self._before.effects, self._after.effects)
            )
            differences += [
                f"{what[0]} {count} times{what[1]}, and no person was asked; {before[what]} with the earlier code "
                f"alone, {after[what]} with the new code alone"
                for what, count in found.items()
                if count > max(before[what], after[what])
            ]
        return differences


# What counts of a run


def _completed(folder: Path) -> list[StepCompleted]:
    records = (row.line.record for row in open_run(folder).history.log(type="step.completed"))
    return [record for record in records if isinstance(record, StepCompleted)]


def _place(record: StepCompleted) -> CallPlace:
    return CallPlace(record.agent, record.scope, (record.step, record.args, record.n))


def _results(completed: list[StepCompleted]) -> dict[CallPlace, Any]:
    """The results of effects."""
    return {_place(each): msgspec.json.decode(each.result) for each in completed if each.effect and len(each.result)}


def _answers(completed: list[StepCompleted], probe: Probe) -> dict[CallPlace, Any]:
    """The results of streamed steps. A text that was accepted without its end is another by intent."""
    return {
        _place(each): msgspec.json.decode(each.result)
        for each in completed
        if _place(each) in probe.streamed and each.how != "accepted" and len(each.result)
    }


def _effects(completed: list[StepCompleted], probe: Probe) -> Counter[CallPlace]:
    """How often each effect has happened. One that is repeated under its key has happened once."""
    happened = Counter({_place(each): 1 for each in completed if each.effect})
    for place, returns in probe.returns.items():
        happened[place] = 1 if place in probe.idempotent else returns
    return happened


def _counts(effects: Counter[CallPlace]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for place, count in effects.items():
        counts[f"the effect {place.key[0]}"] += count
    return {name: _Times(count) for name, count in counts.items()}


class _Times(int):
    """How often something has happened, in words."""

    def __repr__(self) -> str:
        return f"{int(self)} {'time' if self == 1 else 'times'}"


def _call(place: CallPlace) -> tuple[str, ...]:
    """The same effect with the same arguments, wherever it was called; first the words for it."""
    return f"the effect {place.key[0]} has happened", " with equal arguments", place.key[1]


def _scope(place: CallPlace) -> tuple[str, ...]:
    """Any effect of one scope, so that a renamed one is found."""
    return "effects have happened", f" in the scope {place.scope or 'main'}", place.agent


def _of_kind(kind: Callable[[CallPlace], tuple[str, ...]], effects: Counter[CallPlace]) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for place, count in effects.items():
        counts[kind(place)] += count
    return counts


def _seen(folder: Path, outcome: Outcome) -> dict[str, Any]:
    """What counts of the end of a run, by the words for it."""
    found = open_run(folder).result
    plan = folder / "todo.md"
    outputs = sorted(path for path in (folder / "outputs").rglob("*") if path.is_file())
    return {
        "the status": outcome.status,
        "the error": repr(outcome.error) if outcome.error else None,
        "the result": outcome.result,
        "the data in state.json": found.state,
        "todo.md": read_markdown(plan.read_bytes()).body.decode() if plan.exists() else None,
        "the questions": [*(each.question for each in outcome.approvals), *(each.step for each in outcome.doubts)],
        **{f"outputs/{path.relative_to(folder / 'outputs')}": path.read_bytes() for path in outputs},
    }


def _differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    names = dict.fromkeys([*expected, *found])
    return [
        f"{name}: {found.get(name)!r}, but without a crash {expected.get(name)!r}"
        for name in names
        if expected.get(name) != found.get(name)
    ]
