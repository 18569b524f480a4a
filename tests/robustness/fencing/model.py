"""The model: writers that take a workspace from one another, pruning, readers, and what must hold all the time.

Every record that is written is the intent of an effect, so what a writer has acknowledged is what it may have done.
Some tell of an output that was written before: no earlier one may take its place.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from typing import NamedTuple
from unittest import mock

from satchel.workspace.base.errors import LeaseHeld, StorageFailed
from satchel.workspace.formats import Keep, Rule, definition
from satchel.workspace.inbound import rejection
from satchel.workspace.inspect import lease, load
from satchel.workspace.inspect.load import Look, look
from satchel.workspace.journal import (
    AnyRecord,
    Fenced,
    Line,
    Output,
    Own,
    Pruned,
    StepStarted,
    first_kept,
    kept_lines,
    reader,
    segment_log,
    writer,
)
from satchel.workspace.journal.segment import segment_path, segments
from satchel.workspace.lifecycle import acquire, retention
from satchel.workspace.lifecycle.acquire import Owned
from satchel.workspace.state import checkpoint
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import Store
from satchel.workspace.store.remote_store import RemoteStore

from .bucket import Bucket, Faults, opened_store
from .scheduler import Process, SimulatedPool, Simulation, wait_for

_DEFINITION = b"format: 1\nrun_id: r\nagent: a:b\n"
_OUTPUT = "outputs/a.txt"
_MADE = "made"  # the last part of a step's name, of a record that tells of an output
_OPENINGS = 3
_GROUPS = 8


class Violation(AssertionError):
    """A rule that did not hold."""


class Owner(NamedTuple):
    """Who was told that the workspace is its."""

    name: str
    epoch: int
    fence: int  # its record


class Draft(NamedTuple):
    """An output. Later ones are greater."""

    epoch: int = 0
    number: int = 0  # of those that the owner has made

    def encode(self) -> bytes:
        return f"{self.epoch} {self.number}".encode()

    @classmethod
    def parse(cls, data: bytes) -> Draft:
        return cls(*map(int, data.split()[:2]))


class Model:
    """One schedule of a seed, and what it has shown."""

    def __init__(self, seed: int):
        self.simulation = Simulation(seed)
        self.bucket = Bucket()
        self.faults: Faults | None = Faults(self.simulation)
        self.acknowledged: dict[int, tuple[str, Line]] = {}  # by seq
        self.owners: list[Owner] = []
        self.draft = Draft()  # the last that was acknowledged
        self.pruned_to = 0  # the journal says so
        choose = self.simulation.random.choice
        self.keep = Keep(history=Rule(choose((1, 2, 8, 10**6))), checkpoints=Rule(choose((1, 2))))
        self.refused = 0  # writers that were kept out
        self.bucket.put("workspace.yaml", _DEFINITION, "", None, None)

    def run(self) -> None:
        """Violation, told with the schedule, if a rule does not hold."""
        simulation = self.simulation
        for number in range(1, 2 + simulation.random.randrange(3)):
            process = Process(f"writer {number}")
            simulation.begin(process, process.name, partial(self._write, process.name))
        if simulation.chance(0.5):
            simulation.begin(Process("reader"), "reader", self._read)
        self._play()

    def _play(self) -> None:
        """Let those who have begun go on to their end, and look at what they have made."""
        simulation = self.simulation
        try:
            with _simulated(simulation):
                simulation.run()
                if simulation.error is not None:
                    raise simulation.error
                self._check()
                self._go_on()
        except Exception as error:
            raise Violation(self._told(error)) from error

    # Actors

    def _write(self, name: str) -> None:
        """Take the workspace, write, lose it, take it again."""
        for opening in range(_OPENINGS):
            try:
                self._own(f"{name}.{opening}")
            except LeaseHeld:
                self.refused += 1
            except StorageFailed:
                pass
            self.simulation.sleep(self.simulation.random.random() * 60)

    def _own(self, name: str) -> None:
        simulation, random = self.simulation, self.simulation.random
        store = opened_store(simulation, self.bucket, self.faults)
        seen = look(store)
        if simulation.chance(0.3):  # as whoever waits for the holder's heartbeats
            simulation.sleep(random.random() * 60)
        makes = simulation.chance(0.4)
        with self._writing(name, store, seen) as (journal, moment, owned):
            last = _last_output(moment)
            for group in range(random.randrange(_GROUPS)):
                for each in range(random.choice((1, 1, 1, 2, 3))):
                    journal.add(_record(f"{name}.{group}.{each}", random.choice((0, 0, 200, 700))))
                if simulation.chance(0.5):
                    journal.flush_soon()
                    journal.add(_record(f"{name}.{group}.soon", 0))
                    journal.flush_soon()
                journal.flush()
                if makes and simulation.chance(0.6):
                    draft = Draft(owned.epoch, group + 1)
                    last = rejection.write_output(
                        store, _OUTPUT, draft.encode(), last, partial(owned.check_has_it, store)
                    ).output
                    journal.add(_record(f"{name}.{group}.{_MADE}", 0, f"{draft.encode().decode()} {last.version}"))
                    journal.flush()
                if simulation.chance(0.25):
                    checkpoint.write(store, moment, {}, keep=self.keep)
                    if simulation.chance(0.7):
                        self._prune(store, journal, moment, owned)
            if simulation.chance(0.5):
                if simulation.chance(0.7):
                    checkpoint.write(store, moment, {}, keep=self.keep)
                journal.roll_up()

    @contextmanager
    def _writing(self, name: str, store: Store, seen: Look) -> Iterator[tuple[writer.Journal, Moment, Owned]]:
        """Have the workspace, which was `seen` so, for the body."""
        owned = acquire._take(store, seen)
        assert owned.segments is not None
        moment = self._taken(name, owned)
        next_seq = owned.begin()
        journal = writer.Journal(
            store,
            epoch=owned.epoch,
            next_seq=next_seq,
            apply=moment.add,
            prev=moment.crc,
            opening=owned.opening,
            segments=owned.segments,
        )
        journal.on_durable = partial(self._told_durable, name, owned.epoch)
        try:
            yield journal, moment, owned
        finally:
            journal.end()

    def _prune(self, store: Store, journal: writer.Journal, moment: Moment, owned: Owned) -> None:
        """As an owner does. It may be a zombie by the time it removes anything."""
        assert owned.fence is not None
        facts, own = retention.Facts(moment.seq, (), ()), Own(owned.fence.seq, journal.growing)
        with suppress(FileNotFoundError):  # what it would read is gone: another has pruned
            found = retention.plan(store, facts, self.keep, own, 0, all=True)
            if found is None:
                return
            journal.add(retention.by_rule(found))
            journal.flush()
            self.pruned_to = max(self.pruned_to, found.up_to)
            with suppress(StorageFailed, FileExistsError):
                retention.carry_out(store, found)

    def _read(self) -> None:
        """Whoever looks at any time sees all that was acknowledged before."""
        for _ in range(8):
            self.simulation.sleep(self.simulation.random.random() * 60)
            known = dict(self.acknowledged)
            try:
                seen = look(opened_store(self.simulation, self.bucket, self.faults))
            except StorageFailed:
                continue
            self._holds(seen.moment, known, "a reader")

    # Rules

    def _taken(self, name: str, owned: Owned) -> Moment:
        """It is told that the workspace is its: it must know everything, and be the only one of its epoch."""
        assert owned.fence is not None
        owner = Owner(name, owned.epoch, owned.fence.seq)
        self.simulation.note(f"has it from record {owner.fence} on, epoch {owner.epoch}")
        before = {seq: each for seq, each in self.acknowledged.items() if each[1].epoch < owner.epoch}
        self._holds(owned.seen.moment, before, "its new owner")
        for other in self.owners:
            if (other.epoch < owner.epoch) != (other.fence < owner.fence) or other.epoch == owner.epoch:
                raise Violation(f"epochs don't increase along the journal: {other}, {owner}")
        if late := [seq for seq in before if seq >= owner.fence]:
            raise Violation(f"records {late} were acknowledged behind the fence of {owner}")
        self.owners.append(owner)
        return owned.seen.moment

    def _told_durable(self, name: str, epoch: int, lines: Sequence[Line]) -> None:
        """Records are acknowledged: nobody who came later may have it."""
        self.simulation.note(f"acknowledged {[line.seq for line in lines]}")
        for line in lines:
            for owner in self.owners:
                if owner.epoch > epoch and line.seq >= owner.fence:
                    self._stop(f"{name} acknowledged record {line.seq}, which is behind the fence of {owner}")
            if isinstance(line.record, Pruned):
                continue
            if line.seq in self.acknowledged:
                self._stop(f"{name} and {self.acknowledged[line.seq][0]} both acknowledged record {line.seq}")
            self.acknowledged[line.seq] = name, line
            if isinstance(line.record, StepStarted) and line.record.step.endswith(_MADE):
                self.draft = Draft.parse(line.record.call.encode())

    def _stop(self, text: str) -> None:
        """Whoever is told of an error may make another one of it."""
        self.simulation.error = self.simulation.error or Violation(text)
        raise self.simulation.error

    def _holds(self, moment: Moment, known: dict[int, tuple[str, Line]], who: str) -> None:
        """All acknowledged effects, each once, in their order."""
        started = {record.step: place for place, record in enumerate(moment.root.scopes[""].started.values())}
        places = []
        for seq, (name, line) in sorted(known.items()):
            assert isinstance(line.record, StepStarted)
            if line.record.step not in started:
                raise Violation(f"record {seq}, acknowledged by {name}, is lost: {who} at {moment.seq} has not seen it")
            places.append(started[line.record.step])
        if places != sorted(places):
            raise Violation(f"{who} has seen effects in another order")

    def _check(self) -> None:
        """At the end: one history, whether read from a checkpoint or from as far back as it goes."""
        store = opened_store(self.simulation, self.bucket, None)
        self._holds(look(store).moment, self.acknowledged, "the last look")
        if self.draft.epoch and (found := Draft.parse(store.read(_OUTPUT).data)) < self.draft:
            raise Violation(f"the output is {found}, in the place of {self.draft}, which was acknowledged")
        kept = {line.seq for line in kept_lines(store)}
        for seq, (name, line) in self.acknowledged.items():
            if seq < first_kept(store) and isinstance(line.record, StepStarted) and seq not in kept:
                raise Violation(f"record {seq}, acknowledged by {name}, is lost: it is not kept for ever")
        positions = [checkpoint.position_of(path) for path in checkpoint.paths(store)]
        starts = [at for at in positions if at >= self.pruned_to]
        for start in starts if self.pruned_to else [0, *starts]:
            if positions or self.acknowledged or segments(store):
                self._is_one_history(start, reader.read(store, after=start).lines if segments(store) else ())

    def _is_one_history(self, start: int, lines: Sequence[Line]) -> None:
        epoch, steps, crc = 0, set(), lines[0].prev if lines else ""
        for seq, line in enumerate(lines, start + 1):
            if line.seq != seq:
                raise Violation(f"record {line.seq} stands where {seq} belongs")
            if line.prev != crc:
                raise Violation(f"record {seq} follows another one than {seq - 1}")
            crc = line.crc
            is_fence = isinstance(line.record, Fenced)
            if epoch and (line.epoch < epoch or (line.epoch > epoch) != is_fence):
                raise Violation(f"epochs don't increase along the journal: {line.epoch} after {epoch}, record {seq}")
            epoch = line.epoch
            if isinstance(line.record, StepStarted):
                if line.record.step in steps:
                    raise Violation(f"{line.record.step} is there twice")
                steps.add(line.record.step)
            if seq in self.acknowledged and self.acknowledged[seq][1] != line:
                name, theirs = self.acknowledged[seq]
                raise Violation(f"record {seq}, acknowledged by {name}, is lost: {line} stands there, not {theirs}")
        if behind := [seq for seq in self.acknowledged if seq > max(start + len(lines), start)]:
            raise Violation(f"records {behind} are lost: the journal ends before them")

    def _go_on(self) -> None:
        """Whatever has happened, the next one can take it and write."""
        process = Process("the next")
        self.faults = None
        self.simulation.begin(process, process.name, partial(self._own, process.name))
        self.simulation.run()
        if self.simulation.error is not None:
            raise self.simulation.error
        self._check()

    def _told(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        where = ", ".join(f"{frame.name}:{frame.lineno}" for frame in frames[-4:])
        trail = "\n".join(self.simulation.trail[-150:])
        return f"seed {self.simulation.seed}: {type(error).__name__}: {error} ({where})\n{trail}"


class Scripted(Model):
    """A schedule that is written down, for what random ones show too seldom. Nothing is lost, and nothing stalls."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.faults = None
        self._turn = 0

    def _await(self, turn: int) -> None:
        """Go on when all earlier turns are over."""
        self.simulation.until(lambda: self._turn == turn)

    def _over(self) -> None:
        self._turn += 1

    def _acknowledge(self, journal: writer.Journal, *steps: str) -> None:
        """Write each as a commit of its own."""
        for step in steps:
            journal.add(_record(step, 0))
            journal.flush()


class LateFence(Scripted):
    """A writer looks, and puts its fence up only when the name that was next has been rolled up and is free again.

    The fence then lies where the records of another were, and these are in the roll-up.
    """

    def run(self) -> None:
        for name, body in (("first", self._first), ("late", self._late)):
            self.simulation.begin(Process(name), name, body)
        self._play()

    def _first(self) -> None:
        store = opened_store(self.simulation, self.bucket, None)
        with self._writing("first", store, look(store)) as (journal, moment, _):
            self._acknowledge(journal, "a")  # record 2
            checkpoint.write(store, moment, {})
            journal.roll_up()
            self._over()
            self._await(2)
            self._acknowledge(journal, "b", "c")  # 3, and 4, which does not repeat it
            journal.roll_up()  # leaves 4, as the last, and removes 3
            self._over()

    def _late(self) -> None:
        self._await(1)
        store = opened_store(self.simulation, self.bucket, None)
        seen = look(store)
        self._over()
        self._await(3)
        with self._writing("late", store, seen) as (journal, _, _):
            self._acknowledge(journal, "d")


class HollowSegment(Scripted):
    """A writer is killed while it sends a commit, and the server keeps an empty object under its name."""

    def run(self) -> None:
        self.simulation.begin(Process("both"), "both", self._both)
        self._play()

    def _both(self) -> None:
        for name in ("first", "second"):
            store = opened_store(self.simulation, self.bucket, None)
            with self._writing(name, store, look(store)) as (journal, _, _):
                self._acknowledge(journal, name)
                self.bucket.put(segment_path(journal.next_seq), b"", "", None, "*")


class LateLook(Scripted):
    """A writer finds another output than its own, and is stopped right behind the moment in which it still has the
    workspace. Then another takes it, and writes the output."""

    def run(self) -> None:
        self.bucket.put(_OUTPUT, Draft().encode(), "", None, None)  # by an attempt that was cut off
        for name, body in (("first", self._first), ("second", self._second)):
            self.simulation.begin(Process(name), name, body)
        self._play()

    def _first(self) -> None:
        store = opened_store(self.simulation, self.bucket, None)
        with suppress(LeaseHeld), self._writing("first", store, look(store)) as (_, _, owned):

            def check_owner() -> None:
                owned.check_has_it(store)
                self._over()
                self._await(2)

            rejection.write_output(store, _OUTPUT, Draft(1, 1).encode(), None, check_owner)

    def _second(self) -> None:
        self._await(1)
        store = opened_store(self.simulation, self.bucket, None)
        with self._writing("second", store, look(store)) as (journal, _, owned):
            rejection.write_output(store, _OUTPUT, Draft(2, 1).encode(), None, partial(owned.check_has_it, store))
            journal.add(_record(_MADE, 0, f"{Draft(2, 1).encode().decode()} -"))
            journal.flush()
        self._over()


def _record(step: str, size: int, call: str = "") -> AnyRecord:
    return StepStarted(scope="", no=1, step=step, args="0" * 16, n=0, call=call or "x" * size, idempotency_key=step)


def _last_output(moment: Moment) -> Output | None:
    """What is on record."""
    told = [each.call for each in moment.root.scopes[""].started.values() if each.step.endswith(_MADE)]
    if not told:
        return None
    epoch, number, version = told[-1].split()
    data = Draft(int(epoch), int(number)).encode()
    return Output(hashlib.sha256(data).hexdigest(), len(data), version)


def _simulated(simulation: Simulation) -> ExitStack:
    """Threads and waiting of the code become parts of the schedule, and its sizes are such that little is much."""
    stack = ExitStack()

    def pool(threads: int, name: str) -> SimulatedPool:
        of, name = simulation.process, name.removeprefix("satchel-")
        return SimulatedPool(
            simulation, f"{of.name if of else ''} {name}", threads=threads, shared=name == "journal" and threads == 1
        )

    for replaced, name, value in (
        (segment_log, "ThreadPoolExecutor", pool),
        (writer, "ThreadPoolExecutor", pool),
        (writer, "wait", wait_for),
        (segment_log, "REPEATED_BYTES", 900),
        (segment_log, "ROLLED_BYTES", 3000),
        (checkpoint, "_APART", 1),
        (acquire, "check_conditional_puts", lambda store: None),
        (load, "define", _define),
        (lease, "process_started", lambda pid: ""),
        (load, "_begin", lambda job: _Begun(simulation, job)),
        (RemoteStore, "fetch", lambda store, paths: None),  # only saves time; what is needed is read one by one
    ):
        stack.enter_context(mock.patch.object(replaced, name, value))
    return stack


class _Begun:
    """A thread that does its work before what is done beside it, or behind that."""

    def __init__(self, simulation: Simulation, job: Callable[[], None]):
        self._left = [job]
        self._error: Exception | None = None
        if simulation.chance(0.5):
            self._do()

    def _do(self) -> None:
        try:
            while self._left:
                self._left.pop()()
        except Exception as error:
            self._error = error

    def result(self) -> None:
        self._do()
        if self._error is not None:
            raise self._error


def _define(store: Store) -> definition.Definition:
    return _parsed(store.read("workspace.yaml").data)


@cache
def _parsed(data: bytes) -> definition.Definition:
    return definition.parse(data.decode())


def explore(seeds: Sequence[int]) -> dict[str, int]:
    """Violation for the first schedule in which a rule does not hold. What was met, else."""
    tally = {"schedules": 0, "acknowledged": 0, "owners": 0, "kept out": 0, "pruned": 0}
    for seed in seeds:
        model = Model(seed)
        model.run()
        tally["schedules"] += 1
        tally["acknowledged"] += len(model.acknowledged)
        tally["owners"] += len(model.owners)
        tally["kept out"] += model.refused
        tally["pruned"] += model.pruned_to > 0
    return tally
