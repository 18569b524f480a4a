"""A run that is going on in a thread of the test, and a person at its files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from waits import PATIENCE

from satchel.runtime.execution.running import Outcome, run
from satchel.workspace import journal
from satchel.workspace.journal import Edited

from .folder import Place


class Told:
    """What a person at the terminal has been told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def noticed(self, kind: str, text: str) -> None:
        self.lines.append(f"{kind}: {text}")

    def __getattr__(self, name: str) -> Any:
        return lambda *words: None


class Running:
    def __init__(self, place: Place, agent: Any, gate: Gate):
        self.place, self.told, self._gate = place, Told(), gate
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._agent = agent
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = run(self.place.folder, self._agent, watch=self.told)
        except BaseException as error:
            self.error = error

    def reach(self, name: str) -> None:
        """The step of this name is at work, and the files show where the run is."""
        self._gate.reach(name)
        begun = f"[/] {name.split()[0]} ^"
        self.until(lambda: '"data": {' in self.text("state.json"), "state.json")
        self.until(lambda: begun in self.text() + self.text("agents/helper/todo.md"), "the plan")

    def text(self, path: str = "todo.md") -> str:
        return self.place.text(path) if self.place.there(path) else ""

    def until(self, is_so: Callable[[], Any], what: str = "") -> None:
        until = time.monotonic() + PATIENCE
        while not is_so():
            assert self._thread.is_alive() or is_so(), f"{what}: it has ended: {self.outcome} {self.error!r}"
            assert time.monotonic() < until, f"{what} never came: {self.told.lines}"
            time.sleep(0.01)

    def until_taken(self, path: str = "todo.md", times: int = 1) -> Edited:
        """The record of the edit."""
        found: list[Edited] = []

        def is_recorded() -> bool:
            lines = journal.read(self.place.store, after=0).lines
            found[:] = [line.record for line in lines if isinstance(line.record, Edited) and line.record.file == path]
            return len(found) >= times

        self.until(is_recorded, f"an edit of {path}")
        return found[-1]

    def until_told(self, words: str) -> None:
        self.until(lambda: any(words in line for line in self.told.lines), words)

    def end(self) -> Outcome:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"it does not end: {self.told.lines}"
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


class Gate:
    """Holds an agent in the steps of these names. A test waits until it is there, and lets it go."""

    def __init__(self, *names: str) -> None:
        self._reached = {name: threading.Event() for name in names}
        self._opened = {name: threading.Event() for name in names}
        self.calls: list[str] = []

    def pass_through(self, name: str) -> None:
        """In the thread of a sync step."""
        self.calls.append(name)
        if name in self._reached:
            self._reached[name].set()
            assert self._opened[name].wait(PATIENCE), name

    def reach(self, name: str) -> None:
        assert self._reached[name].wait(PATIENCE), name

    def open(self, *names: str) -> None:
        for name in names or self._opened:
            self._opened[name].set()


@contextmanager
def going(place: Place, agent: Any, gate: Gate) -> Iterator[Running]:
    running = Running(place, agent, gate)
    try:
        yield running
        running.end()
    finally:
        gate.open()
        running._thread.join(PATIENCE)
