"""Crashes a recorded history at every call, in every legal way that time allows, and checks what opening makes of it.

A scenario is a row of crashes: the first at a call of the workload, each further one at a call of the opening (and of
the work) that followed the one before. What fails is made as small as it goes and told with the calls that matter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Literal, NamedTuple

from satchel.workspace.base.errors import Conflicting, InvalidFile, Refused, SatchelError
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import Why

from . import legal, memory
from .checker import Violation, check
from .edited import Judge
from .legal import Chain, Crash
from .memory import ROOT, Memory, Step, files
from .play import playing
from .steady import count_openings_from, new_process, steady
from .witness import Witness
from .workloads import Workload, go_on

_CALLS_SHOWN = 24

Then = Literal["die", "close", "work"]
_THENS: tuple[Then, ...] = ("die", "close", "work")


class Stage(NamedTuple):
    """A crash, and what the process that opens the workspace after it is there for."""

    crash: Crash
    why: Why
    then: Then


Scenario = tuple[Stage, ...]


class Found(Exception):
    """A violation, with the smallest scenario that still shows it."""


@dataclass
class Tally:
    states: int = 0  # distinct: files, and what was acknowledged
    kills: int = 0
    power_failures: int = 0
    openings: int = 0
    crashed_again: int = 0
    _seen: set[bytes] = field(default_factory=set)  # digests of them

    def __str__(self) -> str:
        return (
            f"{self.states} distinct states ({self.kills} kills, {self.power_failures} power failures, "
            f"{self.crashed_again} of them while opening after one), {self.openings} openings"
        )

    def is_new(self, tree: dict[str, bytes], acknowledged: int) -> bool:
        listing = b"".join(path.encode() + b"\0" + _digest(data) for path, data in sorted(tree.items()))
        digest = blake2b(listing + b"%d" % acknowledged, digest_size=12).digest()
        if digest in self._seen:
            return False
        self._seen.add(digest)
        self.states += 1
        return True

    def add(self, other: Tally) -> None:
        self._seen |= other._seen
        self.states = len(self._seen)
        for name in ("kills", "power_failures", "openings", "crashed_again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@lru_cache(4096)
def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=12).digest()


@dataclass(slots=True)
class _Past:
    """A recording, what was known before it, the number of its first call, and the stage it was recorded in."""

    log: Sequence[Step]
    witness: Witness
    first: int = 0
    came_by: tuple[_Past, Stage] | None = None
    opened: int = 0  # so many calls had been made when the workspace was open
    _known: tuple[int, Witness] | None = None  # at the latest call that was asked for

    def known_at(self, at: int) -> Witness:
        """What is known when call `at` has been made. Not to be changed."""
        since, witness = self._known if self._known and self._known[0] <= at else (-1, self.witness)
        if since < at:
            self._known = at, _seen(witness, self.log[since + 1 : at + 1])
        return self._known[1] if self._known else witness


class Explorer:
    """Explores one workload. `per_call` bounds the power failures tried after each call; of the calls, every
    `every`th is tried, in their order, or `shuffled`."""

    def __init__(self, workload: Workload, seed: int, per_call: int, *, every: int = 1, shuffled: bool = False):
        self.tally = Tally()
        self._workload, self._seed, self._per_call, self._every = workload, seed, per_call, every * workload.every
        self._shuffled = shuffled
        self._rng = random.Random(f"{workload.name}-{seed}")
        self._judge: Judge | None = None

    def explore(self) -> Tally:
        with steady():
            past = self.record()
            points = [at for at in _crash_points(past.log) if at % self._every == self._seed % self._every]
            if self._shuffled:
                self._rng.shuffle(points)
            for at in points:
                self._crash_at(past, at)
        return self.tally

    def record(self) -> _Past:
        """Let the workload run, without a crash. In a `steady` world."""
        new_process()
        editing = self._workload.editing
        planted = editing.files() if editing else self._workload.files
        self._judge = editing.judge() if editing else None
        count_openings_from(100)  # the planted files may have been made just now, or for a recording before this one
        new_process()
        system, witness = Memory(memory.planted(planted, is_new=self._workload.is_new)), Witness()
        witness.knows_of(planted)
        try:
            self._workload.live(system)
        except Exception as error:
            raise Found(f"{self._workload.name} fails without any crash: {error!r}") from error
        return _Past(system.log, witness)

    def _crash_at(self, past: _Past, at: int) -> None:
        for crash in legal.kills(past.log, at):
            self._follow(past, crash, is_kill=True)
        for losses in legal.power_failures(past.log[at].nodes, self._rng, self._per_call):
            self._follow(past, Crash(at, 0, losses), is_kill=False)

    def _follow(self, past: _Past, crash: Crash, *, is_kill: bool) -> None:
        """Open after a crash, and crash that opening too."""
        if self._is_new(past, crash):
            if is_kill:
                self.tally.kills += 1
            else:
                self.tally.power_failures += 1
        elif not is_kill:
            return
        rng = self._rng
        takes = self._workload.takes
        why: Why = rng.choice((takes, "recover"))
        other: Why = "recover" if why == takes else takes  # so that a record that was lost is not written alike again
        after = self._checked(past, Stage(crash, why, rng.choice(_THENS)))
        if after is past:
            return
        if is_kill:
            # Nothing has been synced for the opening: it must itself make durable what it builds on.
            last = after.opened - 1
            self._crash_again(past, after, Crash(last, 0, legal.harshest(after.log[last].nodes)), other)
        for _ in range(2 if is_kill else 1):
            if again := self._some_crash(after, power=rng.random() < (0.7 if is_kill else 0.5)):
                self._crash_again(past, after, again, other)

    def _crash_again(self, past: _Past, after: _Past, again: Crash, why: Why) -> None:
        if self._is_new(after, again, len(past.log)):
            self.tally.crashed_again += 1
        elif again.losses is not None:
            return  # of a kill it may still be another part that is durable
        last = self._checked(after, Stage(again, why, self._rng.choice(_THENS)))
        if self._rng.random() < 0.2 and (third := self._some_crash(last, power=True)):
            self._checked(last, Stage(third, self._workload.takes, "work"))

    def _is_new(self, past: _Past, crash: Crash, before: int = 0) -> bool:
        tree = files(legal.state_after(past.log, crash))
        return self.tally.is_new(tree, before + past.known_at(crash.at).seen)

    def _some_crash(self, past: _Past, *, power: bool) -> Crash | None:
        points = list(_crash_points(past.log))
        if not points:
            return None
        at = self._rng.choice((points[-1], self._rng.choice(points), self._rng.choice(points)))
        if not power:
            return self._rng.choice(list(legal.kills(past.log, at)))
        return Crash(at, 0, self._rng.choice(list(legal.power_failures(past.log[at].nodes, self._rng, 4))))

    def _checked(self, past: _Past, stage: Stage) -> _Past:
        """One more stage. What fails is told from the beginning, as small as it goes."""
        try:
            return self._open(past, stage)
        except Violation as violation:
            scenario: Scenario = (stage,)
            while past.came_by is not None:
                past, before = past.came_by
                scenario = (before, *scenario)
            small, violation = self._shrunk(past, scenario, violation)
            raise Found(self._told(past, small, violation)) from violation

    def _play(self, past: _Past, scenario: Scenario) -> _Past:
        """Go through a scenario. Violation if anything is wrong at any of its openings."""
        for stage in scenario:
            past = self._open(past, stage)
        return past

    def _open(self, past: _Past, stage: Stage) -> _Past:
        crash = stage.crash
        if crash.at >= len(past.log):
            return past  # a smaller scenario has made fewer calls
        witness = past.known_at(crash.at).copy()
        witness.power_failed |= crash.losses is not None
        nodes = legal.state_after(past.log, crash)
        before = files(nodes)
        if not before:
            if witness.seen:
                raise Violation("the workspace itself is gone, and something was acknowledged")
            return past  # a person makes it again
        new_process()
        self.tally.openings += 1
        first = past.first + crash.at + 1
        system, report = Memory(nodes, first), Report()
        check_opened = self._judge.opened if self._judge else partial(check, report=report)
        try:
            if self._judge:
                self._judge.left(before)
            with playing(system, stage.why, report) as play:
                opened = len(system.log)
                check_opened(before, files(system.nodes), witness)
                if stage.then == "close":
                    play.workspace.close("paused" if self._workload.takes == "run" else None)
                elif stage.then == "work" and not self._workload.finish:
                    go_on(play)
            if stage.then == "close":
                check_opened(files(system.nodes), files(system.nodes), _seen(witness, system.log))
        except Violation:
            raise
        except Exception as error:
            if not (self._judge and isinstance(error, Refused | InvalidFile | Conflicting)):
                raise Violation(f"{stage.why} was refused: {type(error).__name__}: {error}") from error
            self._judge.turned_away(before, files(system.nodes), error)
            opened = len(system.log)
        if stage.then == "work" and self._workload.finish:
            self._finish(system, witness, report)
        return _Past(system.log, witness, first, (past, stage), opened)

    def _finish(self, system: Memory, witness: Witness, report: Report) -> None:
        assert self._workload.finish
        try:
            self._workload.finish(system, witness)
        except SatchelError as error:
            raise Violation(f"the run can't go on: {type(error).__name__}: {error}") from error
        if not self._judge:
            check(files(system.nodes), files(system.nodes), _seen(witness, system.log), report)

    # When something is wrong

    def _shrunk(self, past: _Past, scenario: Scenario, violation: Violation) -> tuple[Scenario, Violation]:
        """Drop every stage, and then every loss, that the violation does not need."""
        smaller = True
        while smaller:
            smaller = False
            for candidate in _simpler(scenario):
                try:
                    self._play(past, candidate)
                except Violation as found:
                    scenario, violation, smaller = candidate, found, True
                    break
        return scenario, violation

    def _told(self, past: _Past, scenario: Scenario, violation: Violation) -> str:
        lines = [f"{violation}", f"workload {self._workload.name!r}, seed {self._seed}"]
        undone = {
            change.call
            for stage in scenario
            for item, kept in (stage.crash.losses or {}).items()
            if isinstance(item, Chain) and isinstance(kept, int)
            for change in item.changes[kept:]
        }
        for number, stage in enumerate(scenario):
            crash = stage.crash
            kind = "a power failure" if crash.losses is not None else "a kill"
            cut = f" ({crash.cut} bytes of it unwritten)" if crash.cut else ""
            after = f"then `{stage.why}`, and it would {stage.then}"
            lines.append(f"{number + 1}. {kind} after call {past.first + crash.at}{cut}; {after}")
            lines += [f"     {line}" for line in _losses(past.log, crash)]
            for at in _calls_that_matter(past, crash, violation, undone):
                lines.append(f"   {past.first + at:5} {past.log[at].call}")
            if number < len(scenario) - 1:
                past = self._open(past, stage)
        return "\n".join(lines).replace(f"{ROOT}/", "")


def _seen(witness: Witness, log: Sequence[Step]) -> Witness:
    witness = witness.copy()
    for step in log:
        witness.see(step.call)
        witness.seen_file(step.nodes, step.call)
    return witness


def _crash_points(log: Sequence[Step]) -> Iterator[int]:
    """The calls after which a crash differs from one after the next call: closing and acknowledging change no file."""
    for at in range(len(log)):
        if at + 1 == len(log) or log[at + 1].call.name not in ("close", "acknowledge"):
            yield at


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    for place in range(len(scenario)):
        if len(scenario) > 1:
            yield scenario[:place] + scenario[place + 1 :]
    for place, stage in enumerate(scenario):
        changed: list[Stage] = []
        crash = stage.crash
        if crash.losses is not None:
            changed.append(stage._replace(crash=crash._replace(losses=None)))
            for item in crash.losses:
                losses = {each: kept for each, kept in crash.losses.items() if each != item}
                changed.append(stage._replace(crash=crash._replace(losses=losses)))
        if crash.cut:
            changed.append(stage._replace(crash=crash._replace(cut=0)))
        if stage.then != "die":
            changed.append(stage._replace(then="die"))
        for each in changed:
            yield (*scenario[:place], each, *scenario[place + 1 :])


def _losses(log: Sequence[Step], crash: Crash) -> Iterator[str]:
    paths = {step.call.node: step.call.path for step in log if step.call.name == "write"}
    for item, kept in (crash.losses or {}).items():
        if isinstance(item, Chain):
            if kept != len(item.changes):
                yield f"of {len(item.changes)} unsynced changes of the name {item.path}, {kept} survived"
        elif isinstance(kept, legal.Torn):
            zeroed = f", zeros in {list(kept.zeroed)}" if kept.zeroed else ""
            yield f"what was written as {paths.get(item, item)} is {kept.size} bytes long{zeroed}"


def _calls_that_matter(past: _Past, crash: Crash, violation: Violation, undone: set[int]) -> list[int]:
    """What was lost and how it had come about, what was done to the file the violation shows in, and the end."""
    matter = set(range(max(0, crash.at - 3), crash.at + 1))
    path = f"{ROOT}/{violation.path}"
    written = {item for item in crash.losses or {} if isinstance(item, int)}
    for at, step in enumerate(past.log[: crash.at + 1]):
        call = step.call
        if past.first + at in undone or call.node in written or path in (call.path, call.other):
            matter.add(at)
    shown = sorted(matter)
    return shown if len(shown) <= _CALLS_SHOWN else shown[:4] + shown[-(_CALLS_SHOWN - 4) :]
