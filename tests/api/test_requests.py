"""`pause`, `cancel` and `wait` from Python."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli.conftest import PLAIN, Make, contents

import satchel
from satchel.runtime.api import stops
from satchel.runtime.status import place
from satchel.workspace.base.errors import UsageError
from satchel.workspace.formats import pause_file
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore


def test_a_pause_is_not_kept(make: Make) -> None:
    folder = make()
    handle = satchel.open(folder)
    stopping = handle.pause(reason="maintenance", by="ada", until=timedelta(hours=1))
    assert stopping.status == "paused" and stopping.is_over
    assert stopping.said == f"paused; it had not started; `satchel resume {folder}` continues"
    file = pause_file.parse((folder / "pause.yaml").read_bytes())
    assert (file.reason, file.by) == ("maintenance", "ada")
    assert abs((datetime.fromisoformat(file.until) - datetime.now(UTC)).total_seconds() - 3600) < 60
    assert handle.run().status == "paused"
    assert handle.resume().status == "completed"
    with pytest.raises(UsageError, match="has already completed"):
        handle.pause()


@pytest.mark.parametrize("until", ["2026-01-01 00:00Z", datetime(2026, 1, 1), timedelta(seconds=-1)], ids=str)
def test_a_time_that_has_passed_pauses_nothing(make: Make, until: str | datetime | timedelta) -> None:
    folder = make()
    with pytest.raises(UsageError, match="has passed"):
        satchel.open(folder).pause(until=until)
    assert not (folder / "pause.yaml").exists()


@pytest.mark.parametrize("until", ["2999-01-01 00:00+00:00", datetime(2999, 1, 1, tzinfo=UTC)])
def test_a_time_is_taken_for_another(make: Make, until: str | datetime) -> None:
    folder = make()
    satchel.open(folder).pause(until=until)
    assert "2999-01-01T00:00:00.000Z" in (folder / "pause.yaml").read_text()


def test_a_time_that_is_none_leaves_a_pause(make: Make) -> None:
    folder = make()
    with pytest.raises(UsageError, match="is not a time"):
        satchel.open(folder).pause(until="soon")
    assert not (folder / "pause.yaml").exists()


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("method", ["pause", "cancel", "stop"])
@pytest.mark.parametrize(
    "wrong",
    [{"reason": 5}, {"reason": None}, {"reason": ["x"]}, {"reason": "\ud800"}, {"by": 5}, {"by": "\ud800"}],
    ids=ascii,
)
def test_a_wrong_word_is_written_and_leaves_the_run_blocked(make: Make, method: str, wrong: dict[str, Any]) -> None:
    handle = satchel.open(folder := make())
    before = contents(folder)
    with pytest.raises(UsageError, match=f"can't have the {next(iter(wrong))}"):
        getattr(handle, method)(**wrong)
    assert contents(folder) == before
    assert handle.run().status == "completed"


@pytest.mark.parametrize("wrong", [{"resume": "later"}, {"resume": 5}, {"resume": None}, {"until": 5}], ids=str)
def test_a_pause_that_ends_in_no_known_way_is_written(make: Make, wrong: dict[str, Any]) -> None:
    handle = satchel.open(folder := make())
    before = contents(folder)
    with pytest.raises(UsageError, match=r"can't have the resume|is not a time"):
        handle.pause(**wrong)
    assert contents(folder) == before


def test_a_cancelled_run_comes_back(make: Make) -> None:
    handle = satchel.open(make())
    assert asyncio.run(handle.cancel_async(by="ada")).status == "cancelled"
    assert handle.run().status == "cancelled"
    with pytest.raises(UsageError, match="was already cancelled"):
        handle.cancel()


@pytest.mark.parametrize("method", ["pause", "cancel"])
@pytest.mark.parametrize("before", ["new", "paused", "undoing"])
def test_a_file_that_vanishes_at_once_takes_the_request_away(
    make: Make, monkeypatch: pytest.MonkeyPatch, method: str, before: str
) -> None:
    """A file that is not there is no instruction, and a command is one."""
    folder = make(UNDOING if before == "undoing" else PLAIN)
    handle = satchel.open(folder)
    if before == "paused":
        handle.pause(reason="lunch")
    if before == "undoing":
        handle.run()
    asked = pausing.ask

    def asks(*args: Any) -> None:
        asked(*args)
        (folder / "pause.yaml").unlink()

    monkeypatch.setattr(pausing, "ask", asks)
    stopping = getattr(handle, method)(reason="enough", by="ada")
    monkeypatch.undo()
    assert stopping.is_over and handle.status().state == ("paused" if method == "pause" else stopping.status)
    if method == "cancel":
        assert handle.run().status == "cancelled" and handle.status().state == "cancelled"
        assert not (folder / "pause.yaml").exists() and not list(handle.history.log(type="resumed"))
        return
    file = pause_file.parse((folder / "pause.yaml").read_bytes())
    assert file.reason == ("lunch" if before == "paused" else "enough")
    assert handle.run().status == "paused"


UNDOING = """
from satchel import agent

async def undo(run):
    pass

@agent(on_cancel=undo)
async def main(run):
    await run.ask("Go on?", wait_for=0)
"""


@pytest.mark.parametrize("is_async", [False, True])
def test_a_pause_does_not_wait_for_the_process_that_runs_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """This process has the workspace, and lets go of it after some looks."""
    folder = make()
    handle, waits = satchel.open(folder), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            workspace.close("paused", "in a test")

    async def wait_async(seconds: float) -> None:
        wait(seconds)

    monkeypatch.setattr(place, "sleep", wait)
    monkeypatch.setattr(asyncio, "sleep", wait_async)
    with opened(DiskStore(folder), "run", Report()) as workspace:
        asked = handle.pause(reason="a look")
        assert asked.status == "requested" and not asked.is_over and "stops at its next safe point" in asked.said
        assert not waits
        stopping = asyncio.run(handle.wait_async()) if is_async else handle.wait()
    assert stopping.status == "paused" and waits == [0.1] * 3
    assert "reason: a look" in (folder / "pause.yaml").read_text()


def test_a_process_that_does_not_stop_is_waited_for_for_ever(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "_MARGIN", -1.0)
    monkeypatch.setattr(stops, "FORCE_AFTER", 0.0)
    folder = make(extra="drain: {timeout: 0s}\n")
    with opened(DiskStore(folder), "run", Report()):
        stopping = satchel.open(folder).pause(wait=True)
    assert not stopping.is_over and f"`satchel stop {folder}` kills it" in stopping.said


@pytest.mark.parametrize("method", ["pause", "cancel"])
def test_a_request_leads_out_of_a_cancellation_that_came_meanwhile(
    make: Make, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    folder = make()
    handle = satchel.open(folder)
    seen = stops.look_beside(handle.store)
    assert handle.cancel().status == "cancelled"
    before = [row.record for row in handle.history.log()]
    monkeypatch.setattr(stops, "look_beside", lambda store: seen)
    late = getattr(handle, method)()
    assert (late.status, late.said) == ("cancelled", "the run is cancelled by now")
    assert handle.status().state == "cancelled" and not (folder / pause_file.PATH).exists()
    new = [type(row.record).__name__ for row in handle.history.log()][len(before) :]
    assert not {"Paused", "PauseRequested"} & {*new}, new
