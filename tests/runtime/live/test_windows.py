"""Windows in which a run pauses, and the times at which it is started."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from noticing import Watching
from properties import seed
from waits import PATIENCE

from satchel import Run, agent, run, step
from satchel.runtime.live import limits
from satchel.runtime.live.limits import current_window, next_opening, next_start, starts
from satchel.workspace.base import time_text
from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.formats import yamltext
from satchel.workspace.formats.definition import ScheduledTask, Window, parse
from satchel.workspace.inspect import define, load
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import open_store

BERLIN = "Europe/Berlin"
HEAD = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def begins(cron: str, zone: str, first: str, last: str) -> list[str]:
    """All openings after `first`, up to `last`, as somebody finds them who looks again after each."""
    found, at = [], utc(first)
    while (opened := next_opening([Window(cron, 60.0, zone)], at)) is not None and opened.begin <= utc(last):
        found.append(opened.begin.isoformat()[:16])
        at = opened.begin
    return found


# Cron, time zones and clocks that are changed


def test_a_window_is_not_open_at_its_first_second_or_still_at_its_end() -> None:
    window = Window("0 22 * * *", 7200.0)
    assert current_window([window], utc("2026-11-22 21:59:59.999")) is None
    opened = current_window([window], utc("2026-11-22 22:00"))
    assert opened is not None
    assert (opened.begin, opened.end) == (utc("2026-11-22 22:00"), utc("2026-11-23 00:00"))
    assert current_window([window], utc("2026-11-22 23:59:59.999")) == opened
    assert current_window([window], utc("2026-11-23 00:00")) is None


def test_of_several_open_windows_the_run_goes_on_at_the_end_of_the_first() -> None:
    short, long = Window("0 22 * * *", 60.0), Window("0 21 * * *", 7200.0)
    opened = current_window([long, short], utc("2026-11-22 22:00:30"))
    assert opened is not None
    assert opened.end == utc("2026-11-22 23:00")


def test_a_window_longer_than_the_time_between_two_is_closed_between_them() -> None:
    window = Window("0 * * * *", 5400.0)
    opened = current_window([window], utc("2026-11-22 22:10"))
    assert opened is not None
    assert opened.end == utc("2026-11-22 23:30")


def test_a_time_is_taken_for_utc() -> None:
    assert begins("0 22 * * *", BERLIN, "2026-07-01", "2026-07-02") == ["2026-07-01T20:00"]
    assert begins("0 22 * * *", BERLIN, "2026-12-01", "2026-12-02") == ["2026-12-01T21:00"]


def test_a_time_that_the_clocks_leave_out_is_left_out() -> None:
    assert begins("30 2 * * *", BERLIN, "2026-03-28", "2026-03-31") == [
        "2026-03-28T01:30",
        "2026-03-29T01:00",
        "2026-03-30T00:30",
    ]


def test_a_time_that_the_clocks_have_twice_opens_twice() -> None:
    assert begins("30 2 * * *", BERLIN, "2026-10-24", "2026-10-26 12:00") == [
        "2026-10-24T00:30",
        "2026-10-25T00:30",
        "2026-10-26T01:30",
    ]


def test_in_the_doubled_hour_the_window_of_the_first_is_forgotten() -> None:
    opened = current_window([Window("30 2 * * *", 3600.0, BERLIN)], utc("2026-10-25 01:15"))  # 02:15, the second time
    assert opened is not None
    assert opened.begin == utc("2026-10-25 00:30")


def test_what_begins_every_quarter_stops_while_the_clocks_are_changed() -> None:
    quarters = begins("*/15 * * * *", BERLIN, "2026-10-25 00:00", "2026-10-25 02:00")
    assert len(quarters) == 8
    assert begins("*/15 2 * * *", BERLIN, "2026-03-29 00:00", "2026-03-29 12:00") == []


def test_a_window_lasts_as_long_on_the_clock_as_on_other_days() -> None:
    opened = current_window([Window("0 0 * * *", 6 * 3600.0, BERLIN)], utc("2026-03-29 00:00"))
    assert opened is not None
    assert opened.end - opened.begin == timedelta(hours=6)


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_looking_back_finds_another_opening_than_looking_forward(zone: str) -> None:
    chance = random.Random(seed())
    crons = ["30 2 * * *", "0 * * * *", "*/20 1-3 * * *", "15 1,2 * * sun", "0 3 1 * *", "45 23 * * *"]
    for _ in range(60):
        changes = chance.choice(["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"])
        at = utc(changes) + timedelta(minutes=chance.randrange(-1440, 2880), seconds=chance.random())
        window = Window(chance.choice(crons), 3600.0 * 24 * 40, zone)
        opened = current_window([window], at)
        assert opened is not None, (window, at)
        following = next_opening([window], opened.begin)
        assert following is not None
        assert opened.begin <= at < following.begin, (window, at, ZoneInfo(zone))
        assert next_opening([window], at) == following


def test_a_day_that_never_comes_is_waited_for() -> None:
    assert next_start([], utc("2026-11-22")) is None
    assert next_start([ScheduledTask("0 9 1 * *"), ScheduledTask("0 8 * * mon")], utc("2026-11-22")) == utc(
        "2026-11-23 08:00"
    )


def test_starts_that_were_missed_are_too_many_or_not_the_last() -> None:
    daily = ScheduledTask("0 9 * * *")
    found = starts(daily, utc("2026-11-20 09:00"), utc("2026-11-22 09:00"), 5)
    assert found == [utc("2026-11-21 09:00"), utc("2026-11-22 09:00")]
    assert starts(daily, utc("2020-01-01"), utc("2026-11-22 08:59"), 1) == [utc("2026-11-21 09:00")]
    assert starts(daily, utc("2026-11-21 09:00"), utc("2026-11-22 08:59"), 5) == []


# What is wrong with them


WRONG = [
    ("windows:\n  - cron: 0 25 * * *\n    duration: 1h\n", "line 5 (windows[0].cron): found '0 25 * * *' with a bad"),
    ("schedule:\n  - cron: 0 5 30 2 *\n", "line 5 (schedule[0].cron): found '0 5 30 2 *' with a bad day-of-month"),
    ("schedule:\n  - cron: 0 5 * * *\n    timezone: Europe/Berln\n", "line 6 (schedule[0].timezone): found 'Europe"),
    ("schedule:\n  - cron: 0 5 * * *\n    timezone: ../etc/passwd\n", "line 6 (schedule[0].timezone)"),
    ("windows:\n  - cron: 0 5 * * *\n    duration: 0\n", "line 6 (windows[0].duration): found 0"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_time_that_can_not_be_is_found_only_when_it_should_come(workspace: Path, text: str, said: str) -> None:
    (workspace / "workspace.yaml").write_text(HEAD + text)
    store = open_store(str(workspace))
    with pytest.raises(InvalidFile) as caught:
        limits.check_times(store, define(store))
    assert said in str(caught.value)
    with pytest.raises(InvalidFile):
        run(workspace, forbidden)
    assert not (workspace / "journal").exists()


@pytest.mark.parametrize("cron", ["0 22 * *", "0 22 * * fri 2026", "@daily", "0 22 * * $(date)", ""])
def test_what_is_no_cron_expression_passes_the_schema(cron: str) -> None:
    with pytest.raises(InvalidFile, match="five fields"):
        parse(HEAD + f"schedule:\n  - cron: {cron!r}\n".replace("'", '"'))


# In a run


class Clock:
    """What time a run thinks it is."""

    def __init__(self, now: datetime):
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock(datetime.now(UTC).replace(hour=21, minute=59, second=0, microsecond=0) + timedelta(days=1))
    monkeypatch.setattr(limits, "utc_now", found)
    monkeypatch.setattr(limits, "TICK", 0.01)
    return found


def windowed(workspace: Path, more: str = "") -> None:
    (workspace / "workspace.yaml").write_text(
        HEAD + f"windows:\n  - cron: 0 22 * * *\n    duration: 2h\n    reason: maintenance\n{more}"
    )


@agent
async def forbidden(run: Run[Any]) -> None:
    raise AssertionError("it was entered")


def test_a_window_that_opens_lets_the_run_go_on(workspace: Path, clock: Clock, calls: list[str]) -> None:
    windowed(workspace)

    @step
    async def work(what: str) -> None:
        if what == "b":
            clock.now += timedelta(minutes=2)
            await asyncio.sleep(0.1)
        calls.append(what)

    @agent
    async def main(run: Run[Any]) -> None:
        for what in "abc":
            await work(what)

    end = (clock.now + timedelta(hours=2, minutes=1)).replace(tzinfo=UTC)
    assert run(workspace, main).status == "paused"
    assert calls == ["a", "b"]
    found = yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value
    assert (found["reason"], found["by"], found["expected_until"]) == ("maintenance", "a window", time_text(end))
    assert run(workspace, forbidden).status == "paused"


def test_an_agent_that_never_waits_does_not_hear_of_the_window(workspace: Path, clock: Clock) -> None:
    windowed(workspace)
    counted = 0

    @step
    async def work(number: int) -> None:
        nonlocal counted
        counted = number
        clock.now += timedelta(seconds=1)

    @agent(durability="pipelined")
    async def main(run: Run[Any]) -> None:
        for number in range(10**6):
            await work(number)

    assert run(workspace, main).status == "paused"
    assert counted < 10**5


def test_a_run_that_is_started_in_a_window_is_entered(workspace: Path, clock: Clock) -> None:
    windowed(workspace)
    clock.now += timedelta(minutes=10)
    outcome = run(workspace, forbidden)
    assert (outcome.status, outcome.entered) == ("paused", False)
    found = yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value
    assert (found["status"], found["reason"]) == ("paused", "maintenance")
    assert load.look(open_store(str(workspace))).moment.status == "paused"


def test_who_resumes_in_a_window_is_paused_by_it_again(workspace: Path, clock: Clock, calls: list[str]) -> None:
    windowed(workspace)
    clock.now += timedelta(minutes=31)

    @agent
    async def main(run: Run[Any]) -> None:
        calls.append("entered")
        await asyncio.sleep(0.1)
        calls.append("at work")
        clock.now += timedelta(days=1)  # the next one is another one
        await asyncio.sleep(30)

    assert run(workspace, main).status == "paused"
    assert calls == []
    assert run(workspace, main, wake=True).status == "paused"
    assert calls == ["entered", "at work"]


def test_a_pause_of_a_clock_that_ran_ahead_overrules_all_windows_until_then() -> None:
    opened = limits.Open(Window("0 22 * * *", 3600), utc("2026-11-22 22:00"), utc("2026-11-22 23:00"))
    for lifted, expected in (("21:59", False), ("22:00", True), ("22:59", True), ("23:00", False)):
        moment = Moment(run_id="a", lifted=time_text(utc(f"2026-11-22 {lifted}")))
        assert limits.is_overruled(opened, moment) == expected


def test_a_run_resumed_in_a_window_is_stopped_by_its_restart(
    workspace: Path, clock: Clock, crash: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.workspace.journal.writer.now", lambda: time_text(clock.now))
    windowed(workspace)
    clock.now = utc(f"{datetime.now(UTC):%Y-%m-%d} 22:30") - timedelta(days=1)
    attempts = []

    @agent
    async def main(run: Run[Any]) -> str:
        attempts.append(run.attempt)
        if len(attempts) == 1:
            raise crash
        await asyncio.sleep(0.05)
        return "done"

    assert run(workspace, main).status == "paused"
    with pytest.raises(crash):
        run(workspace, main, wake=True)
    watch = Watching()
    assert run(workspace, main, watch=watch).status == "completed"
    assert not watch.lines


def test_a_window_that_is_added_while_it_is_open_is_not_obeyed(workspace: Path, clock: Clock) -> None:
    (workspace / "workspace.yaml").write_text(HEAD)
    clock.now += timedelta(minutes=10)

    @agent
    async def main(run: Run[Any]) -> None:
        windowed(workspace)
        await asyncio.sleep(60)

    assert run(workspace, main).status == "paused"


def test_a_window_that_can_not_be_stops_a_run_that_is_going(workspace: Path, clock: Clock) -> None:
    windowed(workspace)
    watch = Watching()

    @agent
    async def main(run: Run[Any]) -> None:
        text = (workspace / "workspace.yaml").read_text()
        (workspace / "workspace.yaml").write_text(text.replace("0 22 * * *", "0 25 * * *"))
        async with asyncio.timeout(PATIENCE):
            while not any(kind == "refused" for kind, _ in watch.lines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        clock.now += timedelta(minutes=2)  # the window as it was before still counts
        await asyncio.sleep(60)

    assert run(workspace, main, watch=watch).status == "paused"
    (refused,) = [text for kind, text in watch.lines if kind == "refused"]
    assert "windows[0].cron" in refused
    with pytest.raises(InvalidFile):
        run(workspace, main)
    assert load.look(open_store(str(workspace))).moment.status == "paused"


def test_nobody_is_told_before_a_window(workspace: Path, clock: Clock) -> None:
    windowed(workspace, "    notify_before: 30m\n")
    clock.now -= timedelta(hours=1)
    watch = Watching()

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.sleep(0.1)
        assert not watch.lines
        clock.now += timedelta(minutes=40)
        await asyncio.sleep(0.1)

    outcome = run(workspace, main, watch=watch)
    assert outcome.status == "completed", outcome.error
    assert [kind for kind, _ in watch.lines] == ["window"]
    assert "maintenance" in watch.lines[0][1]
    assert "22:00" in watch.lines[0][1]


def test_a_finished_run_is_paused_by_a_window(workspace: Path, clock: Clock) -> None:
    windowed(workspace)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["one"])
        await run.todo.each(lambda run, item: None)

    assert run(workspace, main).status == "completed"
    clock.now += timedelta(minutes=10)
    assert run(workspace, main).status == "completed"
