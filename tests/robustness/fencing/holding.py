"""The model with programs that hold the workspace in turn, frozen and late: they append rows under keys that others
repeat, and put and remove files."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from msgspec import Raw

from satchel.runtime.api.hold_opening import HoldOpening
from satchel.workspace.base.errors import SatchelError
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import FileWritten, Line, Message
from satchel.workspace.journal.writer import Journal
from satchel.workspace.secrets import Redactor
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import Store

from .bucket import opened_store
from .model import Model, Violation

_LOG = "calls"
_CALLS = 8
_PATHS = ("a.txt", "b.txt")


class _Opening(HoldOpening):
    """Only what is written to the journal: the readable files are not looked at."""

    def __init__(self, store: Store, moment: Moment, journal: Journal):
        self.store, self.moment = store, moment
        files = SimpleNamespace(logs={}, messages=None, held=object())
        self.workspace: Any = SimpleNamespace(journal=journal, redactor=Redactor(), files={"": files})
        self.workspace.join_log = lambda path, key, *more: files.logs.setdefault(key, None)

    def _show(self, *documents: Any) -> None:
        pass


class Holds(Model):
    """Each row is acknowledged when its append has returned."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.returned: dict[str, int] = {}  # by key or value, the number of the last row

    def _own(self, name: str) -> None:
        simulation, random = self.simulation, self.simulation.random
        store = opened_store(simulation, self.bucket, self.faults)
        seen = look(store)
        if simulation.chance(0.3):
            simulation.sleep(random.random() * 60)
        with self._writing(name, store, seen) as (journal, moment, _):
            opened = _Opening(store, moment, journal)
            for number in range(random.randrange(_CALLS)):
                path = random.choice(_PATHS)
                match random.choice(("append", "append", "key", "put", "remove")):
                    case "append":
                        self._append(opened, f"{name}.{number}", "")
                    case "key":
                        key = f"key {random.randrange(12)}"
                        self._append(opened, key, key)
                    case "put":
                        opened.put(path, f"{name}.{number}".encode())
                    case _:
                        opened.remove(path)
            if simulation.chance(0.5):
                journal.roll_up()

    def _append(self, opened: _Opening, value: str, key: str) -> None:
        """Two rows, so that half of them can be seen."""
        rows = [Message(scope="", content=Raw(f'"{value} {place}"'.encode()), log=_LOG) for place in (1, 2)]
        seq = opened.append(_LOG, rows, key)
        self.simulation.note(f"has appended {value!r}, up to record {seq}")
        if self.returned.setdefault(value, seq) != seq:
            self._stop(f"{value!r} was appended as record {self.returned[value]}, and again as {seq}")

    def _holds(self, moment: Moment, known: dict[int, tuple[str, Line]], who: str) -> None:
        """All rows that were acknowledged, each once, with its other half; and no version of a file but the last."""
        log = moment.root.logs.get(_LOG)
        rows = {line.seq: bytes(line.record.content) for line in log.new_messages} if log is not None else {}  # type: ignore[union-attr]
        versions: dict[str, int] = {}
        for seq, (name, line) in sorted(known.items()):
            if isinstance(line.record, Message) and seq not in rows:
                raise Violation(f"record {seq}, appended by {name}, is lost: {who} at {moment.seq} has not seen it")
            if isinstance(line.record, FileWritten):
                versions[line.record.path] = seq
        for value, times in Counter(rows.values()).items():
            if times > 1:
                raise Violation(f"{value!r} is there {times} times: {who} at {moment.seq}")
        values = Counter(value.rpartition(b" ")[0] for value in rows.values())
        if torn := [value for value, halves in values.items() if halves != 2]:
            raise Violation(f"{torn} are there in part: {who} at {moment.seq}")
        for path, seq in versions.items():
            file = moment.root.files.get(path)
            if file is not None and file.version < seq:
                raise Violation(f"record {seq} of {path} is lost: {who} has version {file.version}")

    def _check(self) -> None:
        super()._check()
        log = look(opened_store(self.simulation, self.bucket, None)).moment.root.logs.get(_LOG)
        there = {line.seq for line in log.new_messages} if log is not None else set()
        if lost := {value: seq for value, seq in self.returned.items() if seq not in there}:
            raise Violation(f"appends that had returned are lost: {lost}")


def explore(seeds: range) -> dict[str, int]:
    """Violation for the first schedule in which a rule does not hold. What was met, else."""
    tally = {"schedules": 0, "appends": 0, "owners": 0, "kept out": 0}
    for seed in seeds:
        model = Holds(seed)
        try:
            model.run()
        except SatchelError as error:
            raise Violation(f"seed {seed}: {error!r}") from error
        tally["schedules"] += 1
        tally["appends"] += len(model.returned)
        tally["owners"] += len(model.owners)
        tally["kept out"] += model.refused
    return tally
