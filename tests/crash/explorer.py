"""Crashes a recorded history at every call, in every legal way that time allows, and checks what opening makes of it.

A scenario is a row of crashes: the first at a call of the workload, each further one at a call of the opening (and of
the work) that followed the one before. What fails is made as small as it goes and told with the calls that matter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from satchel.workspace.opening import Why
from satchel.workspace.report import Report

from . import legal, memory
from .checker import Violation, check
from .legal import Chain, Crash
from .memory import ROOT, Memory, Step, files
from .play import playing
from .steady import new_process, steady
from .witness import Witness
from .workloads import Workload, go_on

Then = Literal["die", "close", "work"]


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
    _seen: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.states} distinct states ({self.kills} kills, {self.power_failures} power failures, "
            f"{self.crashed_again} of them while opening after one), {self.openings} openings"
        )

    def is_new(self, tree: dict[str, bytes], acknowledged: int) -> bool:
        digest = hash((frozenset(tree.items()), acknowledged))
        if digest in self._seen:
            return False
        self._seen.add(digest)
        self.states += 1
        return True

    def add(self, other: Tally) -> None:
        for name in ("states", "kills", "power_failures", "openings", "crashed_again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Past(NamedTuple):
    """A recording, and what was known before it."""

    log: Sequence[Step]
    witness: Witness


class Explorer:
    """Explores one workload. `per_call` bounds the power failures tried after each call."""

    def __init__(self, workload: Workload, seed: int, per_call: int, *, every: int = 1):
        self.tally = Tally()
        self._workload, self._seed, self._per_call, self._every = workload, seed, per_call, every
        self._rng = random.Random(f"{workload.name}-{seed}")

    def explore(self) -> Tally:
        with steady():
            past = self._record()
            for at in _crash_points(past.log):
                if at % self._every == self._seed % self._every:
                    self._crash_at(past, at)
        return self.tally

    def _record(self) -> _Past:
        new_process()
        system = Memory(memory.planted(self._workload.files))
        try:
            self._workload.live(system)
        except Exception as error:
            raise Found(f"{self._workload.name} fails without any crash: {error!r}") from error
        return _Past(system.log, Witness())

    def _crash_at(self, past: _Past, at: int) -> None:
        for crash in legal.kills(past.log, at):
            self._follow(past, crash, is_kill=True)
        for losses in legal.power_failures(past.log[at].nodes, self._rng, self._per_call):
            self._follow(past, Crash(at, 0, losses), is_kill=False)

    def _follow(self, past: _Past, crash: Crash, *, is_kill: bool) -> None:
        """Open after a crash, and crash that opening too."""
        tree = files(legal.state_after(past.log, crash))
        if not self.tally.is_new(tree, sum(step.call.name == "acknowledge" for step in past.log[: crash.at + 1])):
            if not is_kill:
                return
        elif is_kill:
            self.tally.kills += 1
        else:
            self.tally.power_failures += 1
        rng = self._rng
        scenario: Scenario = (Stage(crash, rng.choice(("run", "recover")), rng.choice(("die", "close", "work"))),)
        after = self._checked(past, scenario)
        # After a kill much is not durable that the opening relies on: then a power failure is the harder test.
        for _ in range(3 if is_kill else 1):
            again = self._crash_again(after, power=rng.random() < (0.7 if is_kill else 0.5))
            if again is None:
                continue
            crashed = files(legal.state_after(after.log, again))
            if self.tally.is_new(crashed, len(past.log) + after.witness.seen):
                self.tally.crashed_again += 1
            last = self._checked(past, (*scenario, Stage(again, "recover", "close")))
            if rng.random() < 0.2 and (third := self._crash_again(last, power=True)):
                self._checked(past, (*scenario, Stage(again, "recover", "close"), Stage(third, "run", "work")))

    def _crash_again(self, past: _Past, *, power: bool) -> Crash | None:
        points = list(_crash_points(past.log))
        if not points:
            return None
        at = self._rng.choice((points[-1], self._rng.choice(points), self._rng.choice(points)))
        if not power:
            return self._rng.choice(list(legal.kills(past.log, at)))
        return Crash(at, 0, self._rng.choice(list(legal.power_failures(past.log[at].nodes, self._rng, 4))))

    def _checked(self, past: _Past, scenario: Scenario) -> _Past:
        try:
            return self._play(past, scenario)
        except Violation as violation:
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
        witness = past.witness.copy()
        for step in past.log[: crash.at + 1]:
            witness.see(step.call)
            witness.seen_file(step.nodes, step.call)
        witness.power_failed |= crash.losses is not None
        nodes = legal.state_after(past.log, crash)
        before = files(nodes)
        new_process()
        self.tally.openings += 1
        system, report = Memory(nodes), Report()
        try:
            with playing(system, stage.why, report) as play:
                check(before, files(system.nodes), witness, report)
                if stage.then == "work":
                    go_on(play)
                elif stage.then == "close":
                    play.workspace.close("paused")
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{stage.why} was refused: {type(error).__name__}: {error}") from error
        return _Past(system.log, witness)

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
        for number, stage in enumerate(scenario):
            crash = stage.crash
            kind = "a power failure" if crash.losses is not None else "a kill"
            cut = f" ({crash.cut} bytes of it unwritten)" if crash.cut else ""
            after = f"then `{stage.why}`, and it would {stage.then}"
            lines.append(f"{number + 1}. {kind} after call {crash.at}{cut}; {after}")
            lines += [f"     {line}" for line in _losses(past.log, crash)]
            lines += [f"   {each:5} {past.log[each].call}" for each in _calls_that_matter(past.log, crash, violation)]
            if number < len(scenario) - 1:
                past = self._open(past, stage)
        return "\n".join(lines).replace(f"{ROOT}/", "")


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


def _calls_that_matter(log: Sequence[Step], crash: Crash, violation: Violation) -> list[int]:
    matter = set(range(max(0, crash.at - 4), crash.at + 1))
    written = {item for item in crash.losses or {} if isinstance(item, int)}
    for item, kept in (crash.losses or {}).items():
        if isinstance(item, Chain) and isinstance(kept, int):
            matter |= {change.call for change in item.changes[kept:]}
    paths = {f"{ROOT}/{violation.path}"} if violation.path else set()
    written |= {log[at].call.node for at in matter if log[at].call.node and log[at].call.name == "rename"}
    for at, step in enumerate(log[: crash.at + 1]):
        if (step.call.node in written and step.call.node) or paths & {step.call.path, step.call.other}:
            matter.add(at)
    return sorted(matter)
