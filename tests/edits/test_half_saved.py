"""Files that are only half saved: nothing of them is obeyed, and nothing that comes later is lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satchel import Run, agent
from satchel.runtime.engine.context import Context
from satchel.runtime.execution.live_edits import LiveEdits
from satchel.runtime.live import Announcer
from satchel.runtime.live.folder_watch import PauseSource
from satchel.runtime.live.reverify import Doubts, Rechecks
from satchel.runtime.live.stopping import StopRequests
from satchel.runtime.live.supervisor_link import Interruption
from satchel.workspace.base.errors import SatchelError
from satchel.workspace.inbound import Noticed, being_saved, inbox, notice
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.lifecycle.workspace import Workspace
from satchel.workspace.store import DiskStore, Syscalls
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import Unsettled, Waits

from .folder import Place

REAL = Waits()


class Kernel(Syscalls):
    """Says of every file of people that a program has it open for writing, or that none has."""

    writer: bool | None = True

    def has_writer(self, path: str) -> bool | None:
        return False if ".satchel" in path else self.writer


class Time:
    """Sleeping takes no time."""

    now = 0.0

    def __init__(self) -> None:
        self._began = time.time()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self._began + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(guarded_files, "time", clock)
    monkeypatch.setattr(guarded_files, "WAITS", REAL)
    return clock


@pytest.fixture
def kernel(stopped: Place) -> Kernel:
    kernel = Kernel()
    stopped.store = DiskStore(stopped.folder, kernel)
    return kernel


def boundaries(path: Path, data: bytes, clock: Time) -> Iterator[int]:
    """Save one byte more each time, by the given clock. Yields how many there are."""
    path.parent.mkdir(exist_ok=True)
    with path.open("wb", buffering=0) as file:
        for length in range(len(data)):
            os.utime(path, (clock.time(),) * 2)
            yield length
            file.write(data[length : length + 1])
        os.utime(path, (clock.time(),) * 2)


# While nobody runs it

EDITS: dict[str, tuple[tuple[str, str], str]] = {
    "todo.md": (("- [ ] three", "- [-] three\n- [ ] four"), "the item 'four' is new"),
    "state.json": (('"n": 1', '"n": 19'), "data.n is now 19"),
    "steps/2-two/02-join.json": (('"TWO!"', '"TWO, said she"'), "join"),
    "workspace.yaml": (("agent: agent.py:main\n", "agent: agent.py:main\nsettings: {a: 12}\n"), "settings.a is now 12"),
}


def noticed(place: Place) -> Noticed:
    seen = look(place.store)
    return notice(place.store, seen.moment, seen.definition, patience=0.5)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("path", EDITS)
def test_half_of_a_file_is_obeyed_by_an_opening(stopped: Place, kernel: Kernel, clock: Time, path: str) -> None:
    (old, new), said = EDITS[path]
    data = stopped.text(path).replace(old, new).encode()
    for length in boundaries(stopped.folder / path, data, clock):
        try:
            found = noticed(stopped)
        except SatchelError:
            assert path == "workspace.yaml", "only this one can't be done without"
            continue
        assert not found.edits and not found.questions and path not in found.versions, length
        if path == "workspace.yaml":
            assert all("is changing" in str(each.error) for each in found.refusals)
        else:
            assert not found.refusals and found.being_saved == [path], length
    kernel.writer = False
    found = noticed(stopped)
    (edit,) = found.edits
    assert edit.record.file == path and any(said in each for each in edit.record.says) and not found.refusals


def test_each_old_result_of_a_step_is_opened_to_see_who_saves_it(
    stopped: Place, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may have thousands, and a list of runs looks at each. A look at their times tells enough."""
    for path in stopped.folder.rglob("*"):
        os.utime(path, (time.time() - 3600,) * 2)
    edited = stopped.folder / "todo.md"
    os.utime(edited)
    asked: list[str] = []
    monkeypatch.setattr(kernel, "has_writer", lambda path: asked.append(path) or path == str(edited))
    assert being_saved(stopped.store) == ["todo.md"]
    assert not [path for path in asked if "/steps/" in path]


def test_half_of_pause_yaml_is_obeyed_by_a_start(stopped: Place, kernel: Kernel, clock: Time) -> None:
    data = b"reason: let me look\nresume: await_instructions\ninstructions: delete all but the last three\n"
    moment = stopped.moment
    for _ in boundaries(stopped.folder / "pause.yaml", data, clock):
        with pytest.raises(Unsettled):
            pausing.wish(stopped.store, moment, 0.2)
    kernel.writer = False
    wanted = pausing.wish(stopped.store, moment)
    assert wanted and wanted.file and wanted.file.instructions == "delete all but the last three"


# While it is running


@contextmanager
def going(place: Place) -> Iterator[tuple[Workspace, LiveEdits]]:
    with opened(place.store, "run", Report()) as workspace:
        stopping = StopRequests(workspace, Interruption())

        async def made() -> Context:
            doubts = Doubts(workspace, stopping, Rechecks(workspace.moment), "a crash")
            return Context(workspace, stopping, doubts, Announcer(workspace, None), None)

        context = asyncio.run(made())  # it belongs to a loop
        try:
            yield workspace, LiveEdits(context, None)
        finally:
            context.threads.shutdown()


@pytest.mark.parametrize("path", EDITS)
def test_half_of_a_file_is_obeyed_by_a_run(stopped: Place, kernel: Kernel, clock: Time, path: str) -> None:
    (old, new), said = EDITS[path]
    data = stopped.text(path).replace(old, new).encode()
    kernel.writer = False
    with going(stopped) as (workspace, attention):
        kernel.writer = True
        for length in boundaries(stopped.folder / path, data, clock):
            for _ in range(2):
                assert not attention._is_ready(), length
                attention.obey()
                clock.now += 1
        before = workspace.moment.seq
        kernel.writer = False
        assert not attention._is_ready() and workspace.moment.seq == before
        clock.now += REAL.closed + 0.01
        assert attention._is_ready()
        attention.obey()
        assert workspace.moment.seq > before
    (edit,) = stopped.edited
    assert any(said in each for each in edit.says)


@contextmanager
def obeying(place: Place) -> Iterator[tuple[Workspace, PauseSource]]:
    with opened(place.store, "run", Report()) as workspace:
        stopping = StopRequests(workspace, Interruption())
        yield workspace, PauseSource(workspace, stopping, lambda kind, text: None)


def test_half_of_pause_yaml_is_obeyed_by_a_run(stopped: Place, kernel: Kernel, clock: Time) -> None:
    data = b"reason: let me look\nresume: await_instructions\n"
    kernel.writer = False
    with obeying(stopped) as (workspace, pause):
        kernel.writer = True

        async def save() -> None:
            for length in boundaries(stopped.folder / "pause.yaml", data, clock):
                for _ in range(2):
                    pause.look()
                    clock.now += 1
                    assert workspace.moment.pause is None, length
            kernel.writer = False
            for _ in range(2):
                pause.look()
                clock.now += REAL.look + 0.01

        asyncio.run(save())
        assert workspace.moment.pause and workspace.moment.pause.resume == "await_instructions"


def test_an_emergency_waits_until_the_file_is_closed(
    stopped: Place, kernel: Kernel, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(
        "satchel.runtime.live.folder_watch.os", SimpleNamespace(kill=lambda *a: killed.append(a[1]), getpid=int)
    )
    kernel.writer = False
    with obeying(stopped) as (_, pause):
        kernel.writer = True
        stopped.put("pause.yaml", "mode: emergency\n")

        async def look() -> None:  # it goes on, as no process does
            pause.look()
            assert not killed, "the command that has written it kills at once, and tells what"
            pause.look()

        asyncio.run(look())
        assert killed


def test_a_file_that_stays_open_is_never_taken(stopped: Place, kernel: Kernel, clock: Time) -> None:
    kernel.writer = False
    with going(stopped) as (workspace, attention):
        kernel.writer = True
        stopped.edit("todo.md", ("- [ ] three", "- [ ] three\n- [ ] four"))
        while clock.now < REAL.open - 0.5:
            assert not attention._is_ready()
            clock.now += 0.5
        clock.now += 1
        assert attention._is_ready()
        attention.obey()
        assert "- [ ] four" in workspace.moment.root.plan.text


# Questions


def question(place: Place) -> str:
    @agent
    async def asking(run: Run[Any]) -> None:
        await run.ask("Delete it?", choices=["yes", "no"], wait_for=0)

    place.agent = asking
    assert place.run().status == "waiting"
    return "approvals/a1.yaml"


def test_half_of_an_answer_is_taken_or_refused(place: Place, clock: Time) -> None:
    """`decision: yes` is the beginning of `decision: yesterday I said no`, which is no answer."""
    kernel = Kernel()
    path = question(place)
    text = place.text(path).replace("decision:\n", "decision: no\n").replace("note:\n", "note: not before May\n")
    data = text.encode()
    place.store = DiskStore(place.folder, kernel)
    kernel.writer = False
    with opened(place.store, "answer", Report()) as workspace:
        kernel.writer = True
        for length in boundaries(place.folder / path, data, clock):
            for _ in range(2):
                assert workspace.desk.look(workspace.journal, may_wait=False) == [], length
                workspace.desk.write_questions()
                assert place.get(path) == data[:length]
                clock.now += 1
        kernel.writer = False
        assert workspace.desk.look(workspace.journal, may_wait=False) == []
        clock.now += REAL.closed + 0.01
        (found,) = workspace.desk.look(workspace.journal, may_wait=False)
        assert found.kind == "answered" and workspace.moment.answered["a1"].note == "not before May"


def test_a_form_is_replaced_under_a_program_that_has_it_open(place: Place, clock: Time) -> None:
    kernel = Kernel()
    path = question(place)
    data = place.text(path).replace("decision:\n", "decision: yesterday\n")
    kernel.writer = False
    place.store = DiskStore(place.folder, kernel)
    with opened(place.store, "answer", Report()) as workspace:
        kernel.writer = True
        place.put(path, data)
        for _ in range(80):
            assert workspace.desk.look(workspace.journal, may_wait=False) == []
            clock.now += 0.5
        assert place.text(path) == data
        kernel.writer = False
        (found,) = workspace.desk.look(workspace.journal, may_wait=False)
        assert found.kind == "refused" and "# not accepted: " in place.text(path)


# The inbox


@pytest.mark.parametrize("name", ["a.md", "a.yaml", "20261101T120000.000000Z-0a1b2c.md"])
def test_half_of_a_task_is_taken(stopped: Place, kernel: Kernel, clock: Time, name: str) -> None:
    data = b"delete: all\nbut: the last three\n"
    arrivals = inbox.Arrivals(stopped.store, stopped.moment)
    path = f"inbox/{name}"
    for length in boundaries(stopped.folder / path, data, clock):
        for _ in range(2):
            arrivals.look()
            assert arrivals.offered == {} and arrivals.read(path) is None, length
            clock.now += 1
    kernel.writer = False
    arrivals.look()
    clock.now += REAL.closed + 0.01
    arrivals.look()
    assert [*arrivals.offered] == [path] and (found := arrivals.read(path)) and found.data == data


@pytest.mark.parametrize("writer", [False, None])
def test_a_task_that_was_sent_is_waited_for(stopped: Place, kernel: Kernel, clock: Time, writer: bool | None) -> None:
    """It is there as a whole from the first."""
    kernel.writer = writer
    path = inbox.send(stopped.store, b"delete all\n", "md")
    arrivals = inbox.Arrivals(stopped.store, stopped.moment)
    arrivals.look()
    assert [*arrivals.offered] == [path] and (found := arrivals.read(path)) and found.data == b"delete all\n"


def test_half_of_a_correction_to_a_task_that_was_sent_is_taken(stopped: Place, kernel: Kernel, clock: Time) -> None:
    """Where nobody tells who has a file open."""
    kernel.writer = None
    path = inbox.send(stopped.store, b"delete all\n", "md")
    arrivals = inbox.Arrivals(stopped.store, stopped.moment)
    clock.now += 5
    for _ in boundaries(stopped.folder / path, b"delete all but the last three\n", clock):
        arrivals.look()
        assert arrivals.offered == {} and arrivals.read(path) is None
        clock.now += 1
    arrivals.look()
    clock.now += REAL.unknown + 0.01
    arrivals.look()
    assert [*arrivals.offered] == [path]
