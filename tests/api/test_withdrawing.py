"""A pause that a person takes back before the run has stopped."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, cli
from waits import PATIENCE

import satchel
from satchel import Item, Run, agent, step
from satchel.runtime.api import stops
from satchel.workspace.base.errors import Refused, UsageError
from satchel.workspace.formats import pause_file
from satchel.workspace.journal import Opened, Paused, PauseRequested, Resumed

__all__ = ["cli"]


def until(is_so: Callable[[], Any]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < give_up, "it has never come to that"
        time.sleep(0.01)  # a file has no event


class Gated:
    """A run of two items. The first call of each item waits until its gate is open."""

    def __init__(self, parallel: int = 1):
        self.gates = {name: threading.Event() for name in ("a", "b")}
        self.entered: list[str] = []
        gates, entered = self.gates, self.entered

        @step
        async def hold(text: str) -> str:
            entered.append(text)
            await asyncio.to_thread(gates[text].wait, 60)
            return text

        @step
        async def tell(text: str) -> str:
            return text

        async def work(run: Run[Any], item: Item) -> None:
            await hold(item.text)
            await tell(item.text)

        @agent
        async def main(run: Run[Any]) -> None:
            entered.append("main")
            await run.plan("Hold", ["a", "b"])
            await run.todo.each(work, parallel=parallel)

        self.main = main

    @contextmanager
    def going(self, handle: satchel.Handle) -> Iterator[list[Any]]:
        """The run in a thread. At the end it has ended, and the list has its outcome."""
        ended: list[Any] = []
        thread = threading.Thread(target=lambda: ended.append(handle.run(self.main)))
        thread.start()
        try:
            until(lambda: "a" in self.entered)
            yield ended
        finally:
            for gate in self.gates.values():
                gate.set()
            thread.join(60)
        assert ended


def make(folder: Path) -> satchel.Handle:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: held\nagent: agent.py:main\n")
    return satchel.open(folder)


def status_in(file: Path) -> str | None:
    return pause_file.parse(file.read_bytes()).status


def kinds(handle: satchel.Handle) -> list[type]:
    kinds = (Opened, PauseRequested, Paused, Resumed)
    return [type(row.line.record) for row in handle.history.log() if isinstance(row.line.record, kinds)]


def test_a_pause_can_not_be_taken_back_while_a_step_runs(tmp_path: Path) -> None:
    """The process continues at once; nothing of the agent was stopped."""
    handle, gated = make(tmp_path / "a"), Gated()
    with gated.going(handle) as ended:
        assert handle.pause(reason="lunch", by="ada").status == "requested"
        until(lambda: handle.status().state == "draining" and status_in(tmp_path / "a/pause.yaml") == "draining")
        done = handle.withdraw()
        assert done.status == "withdrawn" and done.said.startswith("the pause is withdrawn; process ")
        assert done.said.endswith(" continues") and not gated.gates["a"].is_set()
        until(lambda: not (tmp_path / "a/pause.yaml").exists())
        assert handle.status().state == "running"
        with pytest.raises(UsageError, match="no pause to withdraw"):
            handle.withdraw()
        gated.gates["a"].set()
        until(lambda: "b" in gated.entered)  # it does not stop between the two
        assert handle.pause(reason="now").status == "requested", "another pause is another one"
        until(lambda: len([*handle.history.log(type="pause.requested")]) == 2)
    assert ended[0].status == "paused" and gated.entered == ["main", "a", "b"]
    assert kinds(handle) == [Opened, PauseRequested, Resumed, PauseRequested, Paused]
    (resumed,) = handle.history.log(type="resumed")
    assert resumed.record["by"] and "withdrawn before the run had stopped" in resumed.record["says"]
    assert handle.resume(gated.main).status == "completed"


def test_a_pause_that_the_run_has_not_noticed_comes_back(tmp_path: Path) -> None:
    """And who asked for it and who took it back is on record."""
    handle, gated = make(tmp_path / "a"), Gated()
    with gated.going(handle) as ended:
        (tmp_path / "a/pause.yaml").write_text("reason: lunch\nby: ada\nstatus: resume\n")
        until(lambda: not (tmp_path / "a/pause.yaml").exists())
        assert handle.status().state == "running"
        (tmp_path / "a/pause.yaml").write_text("status: resume\n")
        until(lambda: not (tmp_path / "a/pause.yaml").exists())
    assert ended[0].status == "completed" and kinds(handle) == [Opened, PauseRequested, Resumed]
    assert next(iter(handle.history.log(type="pause.requested"))).record["by"] == "ada"


def test_the_file_of_a_pause_that_is_over_stays_once_a_program_has_closed_it(tmp_path: Path) -> None:
    """It is not removed under the program. No change of the file tells when that closes it."""
    handle, gated = make(tmp_path / "a"), Gated()
    with gated.going(handle):
        file = tmp_path / "a/pause.yaml"
        with file.open("w") as saving:
            saving.write("reason: lunch\nby: ada\nstatus: resume\n")
            saving.flush()
            until(lambda: kinds(handle) == [Opened, PauseRequested, Resumed])
            assert file.exists()
        until(lambda: not file.exists())
        assert gated.entered == ["main", "a"], "and not only when the step has ended"


def test_a_run_that_is_half_stopped_is_left_so(tmp_path: Path) -> None:
    """One of two items was stopped already. The run stops, and its process resumes it."""
    handle, gated = make(tmp_path / "a"), Gated(parallel=2)
    with gated.going(handle) as ended:
        until(lambda: "b" in gated.entered)
        handle.pause(reason="lunch")
        until(lambda: [*handle.history.log(type="pause.requested")])
        gated.gates["a"].set()
        until(lambda: [*handle.history.log(type="step.completed")])
        said: list[Any] = []
        person = threading.Thread(target=lambda: said.append(handle.withdraw()))
        person.start()
        until(lambda: status_in(tmp_path / "a/pause.yaml") == "resume")
        gated.gates["b"].set()
        person.join(60)
        assert said[0].status == "withdrawn"
    assert ended[0].status == "completed"
    assert kinds(handle) in (
        [Opened, PauseRequested, Paused, Opened, Resumed],
        [Opened, PauseRequested, Paused, Resumed, Opened],
    )


@pytest.mark.parametrize("act", ["cancel", "signal", "instructions"])
def test_what_can_not_be_taken_back_is_taken_back(tmp_path: Path, act: str) -> None:
    handle, gated = make(tmp_path / "a"), Gated()
    with gated.going(handle):
        if act == "cancel":
            handle.cancel()
        elif act == "signal":
            handle.pause(reason="signal")
        else:
            handle.pause(resume="await_instructions")
        until(lambda: [*handle.history.log(type="pause.requested")])
        said = {
            "cancel": "is being cancelled",
            "signal": "stopped by a signal",
            "instructions": "waits for instructions",
        }
        with pytest.raises(Refused, match=said[act]):
            handle.withdraw()
        assert status_in(tmp_path / "a/pause.yaml") != "resume"


def test_a_command_starts_a_second_process(tmp_path: Path, cli: Cli) -> None:
    handle, gated = make(tmp_path / "a"), Gated()
    with gated.going(handle) as ended:
        for options in ((), ("--json",), ("--detach",)):
            handle.pause(reason="lunch")
            said = cli("resume", *options, str(tmp_path / "a"))
            assert said.exit_code == 0 and "the pause is withdrawn; process" in said.output, said.output
            if options == ("--json",):
                assert json.loads(said.stdout)["status"] == "withdrawn"
    assert ended[0].status == "completed" and Paused not in kinds(handle)


def test_a_person_waits_without_a_word(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a process on a machine that may be switched off, say. It is named as soon as it takes longer than usual."""
    handle, gated = make(tmp_path / "a"), Gated(parallel=2)
    monkeypatch.setattr(stops, "_SOON", 0.0)
    with gated.going(handle):
        until(lambda: "b" in gated.entered)
        handle.pause(reason="lunch")
        until(lambda: [*handle.history.log(type="pause.requested")])
        gated.gates["a"].set()
        until(
            lambda: [*handle.history.log(type="step.completed")]
        )  # it can't continue before the other item has stopped, too
        opener = threading.Timer(0.5, gated.gates["b"].set)
        opener.start()
        said = cli("resume", tmp_path / "a")
        opener.join()
    assert said.exit_code == 0 and "the pause is withdrawn" in said.stdout
    assert re.search(r"^waiting for process \d+ on \S+ to notice it, at most \d+ s$", said.stderr, re.M), said.stderr
