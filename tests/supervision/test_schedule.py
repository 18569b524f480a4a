"""`schedule:`: each time is one task in the inbox, whoever serves and whatever the clocks say."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from satchel import InboxTask, Run, agent, run
from satchel.runtime.execution.running import Outcome
from satchel.runtime.supervision import known_run
from satchel.runtime.supervision.known_run import Schedule, judge
from satchel.workspace.base import time_text
from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.inbound import inbox
from satchel.workspace.inspect.load import look as look_at
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.state.run_state import FIRED
from satchel.workspace.store import DiskStore

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1)
DAILY = "schedule: [{cron: '0 9 * * *', name: daily, wait: true}]\n"
KEPT = "schedule: [{cron: '0 9 * * *', name: daily, keep: true, wait: true}]\n"


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def at(self, day: int, hour: float) -> datetime:
        """Set it to a time of November 2026."""
        self.now = datetime(2026, 11, day, tzinfo=UTC) + timedelta(hours=hour)
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What all records are dated by."""
    found = Clock()
    monkeypatch.setattr("satchel.workspace.journal.writer.now", lambda: time_text(found.now))
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make(tmp_path / "a")


def make(folder: Path, schedule: str = DAILY) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: a-1\nagent: agent.py:main\n{schedule}")
    os.utime(folder / "workspace.yaml", (NOON.timestamp(), NOON.timestamp()))
    return folder


@agent
async def noting(run: Run) -> None:
    async def work(run: Run, task: InboxTask) -> None:
        assert task.kind == "schedule" and task.text == ""
        run.state.setdefault("jobs", []).append(f"{task.data['schedule']} {task.data['due']}")

    await run.inbox.each(work)


@agent
async def deaf(run: Run) -> None:
    async def count() -> None:
        run.state["calls"] = run.state.get("calls", 0) + 1

    await run.scope(f"call {run.attempt}", count)


def serve(served: Schedule, place: Path, clock: Clock, who: Any = noting) -> Outcome | None:
    """What `serve` does in a turn; None if it starts nothing."""
    served.look(clock.now)
    found = judge(DiskStore(place), clock.now)
    if not found.starts or (found.at is not None and found.at > clock.now):
        return None
    outcome = run(place, who)
    assert outcome.entered, "it is started for nothing"
    return outcome


def data(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "state.json").read_text())["data"]
    return found


def waiting(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "inbox").glob("*.yaml"))


def test_a_schedule_does_a_job_once_and_never_again(place: Path, clock: Clock) -> None:
    served = Schedule(DiskStore(place), NOON)
    assert serve(served, place, clock) is None
    for day in (23, 24, 25):
        clock.at(day, 8.99)
        assert serve(served, place, clock) is None
        clock.at(day, 9.01)
        assert serve(served, place, clock)
        assert serve(served, place, clock) is None
    assert data(place)["jobs"] == [f"daily 2026-11-{day}T09:00:00Z" for day in (23, 24, 25)]
    assert waiting(place) == []


def test_two_that_serve_make_two_tasks_of_one_time(place: Path, clock: Clock) -> None:
    both = [Schedule(DiskStore(place), NOON) for _ in range(2)]
    for served in both:
        served.look(clock.now)
    clock.at(23, 9.01)
    assert serve(both[0], place, clock)
    assert serve(both[1], place, clock) is None, "after it was taken and done"
    both.append(Schedule(DiskStore(place), clock.now))
    assert serve(both[2], place, clock) is None
    clock.at(24, 9.01)
    for served in both:
        served.look(clock.now)
    assert waiting(place) == ["schedule-daily-20261124T090000Z.yaml"]
    assert serve(both[1], place, clock)
    assert len(data(place)["jobs"]) == 2


def test_a_task_that_a_frozen_server_makes_again_is_done_again(place: Path, clock: Clock) -> None:
    """It looked, froze until the task was done, and created it then."""
    served = Schedule(DiskStore(place), NOON)
    clock.at(23, 9.01)
    served.look(clock.now)
    (name,) = waiting(place)
    again = (place / "inbox" / name).read_bytes()
    assert serve(served, place, clock)
    (place / "inbox" / name).write_bytes(again)
    assert not judge(DiskStore(place), clock.now).starts
    (place / "inbox/other.md").write_text("something else")
    other: list[str] = []

    @agent
    async def listening(run: Run) -> None:
        await run.inbox.each(lambda run, task: other.append(task.name))

    run(place, listening)
    assert other == ["other.md"] and waiting(place) == []
    assert len(data(place)["jobs"]) == 1


@pytest.mark.parametrize(("schedule", "expected"), [(DAILY, ["23"]), (KEPT, ["23", "24", "25"])])
def test_an_untaken_task_does_not_stand_for_the_next(
    place: Path, clock: Clock, schedule: str, expected: list[str]
) -> None:
    make(place, schedule)
    run(place, noting)
    served = Schedule(DiskStore(place), NOON)
    for day in (23, 24, 25):
        clock.at(day, 9.01)
        served.look(clock.now)
    assert [name[21:23] for name in waiting(place)] == expected
    clock.at(25, 10)
    assert serve(served, place, clock)
    assert len(data(place)["jobs"]) == len(expected) and waiting(place) == []
    for later in (served, Schedule(DiskStore(place), clock.now)):
        assert serve(later, place, clock) is None, "those that it stood for do not come after all"
    clock.at(26, 9.01)
    assert serve(served, place, clock)


@pytest.mark.parametrize(("schedule", "expected"), [(DAILY, ["25"]), (KEPT, ["23", "24", "25"])])
def test_times_that_came_while_nobody_served_are_lost(
    place: Path, clock: Clock, schedule: str, expected: list[str]
) -> None:
    make(place, schedule)
    run(place, noting)
    clock.at(25, 12)
    Schedule(DiskStore(place), clock.now).look(clock.now)
    assert [name[21:23] for name in waiting(place)] == expected


def test_a_time_that_came_while_nobody_served_is_lost_to_a_run_that_was_killed(place: Path, clock: Clock) -> None:
    """It has never had a task of the schedule, so only its opening tells since when there is one."""
    with opened(DiskStore(place), "run", Report()) as workspace:
        workspace.journal.flush()
    assert not look_at(DiskStore(place)).moment.clean
    clock.at(23, 9.5)
    Schedule(DiskStore(place), clock.now).look(clock.now)
    assert waiting(place) == ["schedule-daily-20261123T090000Z.yaml"]
    Schedule(DiskStore(place), clock.now).look(clock.at(23, 10))
    assert len(waiting(place)) == 1


def test_a_year_of_minutes_is_made_up_for(place: Path, clock: Clock) -> None:
    make(place, "schedule: [{cron: '* * * * *', keep: true}]\n")
    run(place, noting)
    said = Schedule(DiskStore(place), NOON).look(NOON + 365 * DAY)
    assert len(waiting(place)) == 100 and waiting(place)[-1] == "schedule-1-20271122T120000Z.yaml"
    assert said == ["the schedule 1: only the last 100 missed times are started"]


def test_the_first_of_many_tasks_is_done_again_when_a_slow_server_makes_it_again(
    place: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two make up for the same times, and one is late; the run takes all of them at once."""
    assert known_run._MOST < FIRED
    monkeypatch.setattr(known_run, "_MOST", 20)
    make(place, "schedule: [{cron: '* * * * *', keep: true}]\n")
    run(place, noting)
    Schedule(DiskStore(place), NOON).look(NOON + DAY)
    name, *_ = waiting(place)
    again = (place / "inbox" / name).read_bytes()

    @agent
    async def taking(run: Run) -> int:
        return await run.scope("all", lambda: take(run))

    async def take(run: Run) -> int:
        return len(await run.inbox.take())

    clock.now = NOON + DAY
    assert run(place, taking).result == 20
    (place / "inbox" / name).write_bytes(again)
    assert not judge(DiskStore(place), clock.now).starts


@pytest.mark.parametrize("keep", ["", ", keep: true"])
def test_a_new_run_waits_for_its_first_time(keep: str, tmp_path: Path, clock: Clock) -> None:
    """Nothing says that it is to wait. Whoever serves it, its first task is the same one."""
    place = make(tmp_path / "a", f"schedule: [{{cron: '0 9 * * *', name: daily{keep}}}]\n")
    both = [Schedule(DiskStore(place), NOON + timedelta(minutes=at)) for at in (1, 2)]
    for served in both:
        served.look(clock.now)
    assert waiting(place) == ["schedule-daily-20261122T120000Z.yaml"]
    assert serve(both[0], place, clock) and serve(both[1], place, clock) is None
    assert data(place)["jobs"] == ["daily 2026-11-22T12:00:00Z"]
    clock.at(23, 9.01)
    assert serve(both[0], place, clock) and serve(both[1], place, clock) is None
    assert data(place)["jobs"][1:] == ["daily 2026-11-23T09:00:00Z"]


def test_every_few_seconds_is_no_schedule(tmp_path: Path, clock: Clock) -> None:
    place = make(tmp_path / "a", "schedule: [{every: 10s, name: often}]\n")
    served = Schedule(DiskStore(place), NOON)
    for seconds in (0, 9.9, 10, 12, 20, 61):
        clock.now = NOON + timedelta(seconds=seconds)
        serve(served, place, clock)
    assert served.due == NOON + timedelta(seconds=70), "a time that was missed does not shift the others"
    assert data(place)["jobs"] == [f"often 2026-11-22T12:{at}Z" for at in ("00:00", "00:10", "00:20", "01:00")]
    assert waiting(place) == []


@pytest.mark.parametrize(
    "schedule, words",
    [
        ("{every: 0s}", "whole seconds, at least one"),
        ("{every: 1.5s}", "whole seconds, at least one"),
        ("{every: soon}", "a length of time like 90s or 10m"),
        ("{every: 10s, timezone: Europe/Berlin}", "no time zone next to `every`"),
        ("{every: 10s, cron: 0 9 * * *}", "cron"),
        ("{name: daily}", "every"),
    ],
)
def test_a_schedule_that_says_no_times_is_not_refused(schedule: str, words: str, place: Path) -> None:
    make(place, f"schedule: [{schedule}]\n")
    with pytest.raises(InvalidFile) as error:
        look_at(DiskStore(place))
    assert "schedule[0]" in str(error.value) and words in str(error.value)


def test_a_new_run_is_started_before_its_time_or_misses_it(place: Path, clock: Clock) -> None:
    """Also by a `serve` that only began after it."""
    clock.at(23, 8.99)
    assert serve(Schedule(DiskStore(place), clock.now), place, clock) is None
    clock.at(23, 9.01)
    assert serve(Schedule(DiskStore(place), clock.now), place, clock)


def test_an_agent_that_never_opens_its_inbox_is_in_its_schedule_s_way(place: Path, clock: Clock) -> None:
    """Its being called settles the task: else that would stand for all that come."""
    served = Schedule(DiskStore(place), NOON)
    for day in (23, 24):
        clock.at(day, 9.01)
        assert serve(served, place, clock, deaf)
        assert serve(served, place, clock, deaf) is None
    assert data(place)["calls"] == 2 and waiting(place) == []
    fired = look_at(DiskStore(place)).moment.fired["daily"]
    assert [(each.due, each.unopened) for each in fired] == [
        ("2026-11-23T09:00:00Z", True),
        ("2026-11-24T09:00:00Z", True),
    ]
    assert sorted(path.name for path in (place / "inbox/done").iterdir()) == [
        "schedule-daily-20261123T090000Z.yaml",
        "schedule-daily-20261124T090000Z.yaml",
    ]


def test_an_agent_that_opens_its_inbox_and_fails_has_done_its_task(place: Path, clock: Clock) -> None:
    served = Schedule(DiskStore(place), NOON)
    clock.at(23, 9.01)

    @agent
    async def failing(run: Run) -> None:
        raise KeyError("x")

    outcome = serve(served, place, clock, failing)
    assert outcome and outcome.status == "failed" and len(waiting(place)) == 1
    assert serve(served, place, clock) is None, "a person has to look, until the next time comes"
    clock.at(24, 9.01)
    assert serve(served, place, clock)
    assert data(place)["jobs"] == ["daily 2026-11-23T09:00:00Z"]


def test_an_inbox_that_was_opened_for_messages_only_counts(place: Path, clock: Clock) -> None:
    served = Schedule(DiskStore(place), NOON)
    clock.at(23, 9.01)

    @agent
    async def hearing(run: Run) -> None:
        await run.scope(f"hear {run.attempt}", run.inbox.take, "message")

    assert serve(served, place, clock, hearing)
    assert waiting(place) == []


def test_a_task_that_comes_after_the_agent_was_called_is_settled_by_that_call(place: Path, clock: Clock) -> None:
    served = Schedule(DiskStore(place), NOON)
    clock.at(23, 9.01)

    @agent
    async def slow(run: Run) -> None:
        async def work() -> None:
            if run.attempt == 1:
                clock.at(24, 9.01)
                served.look(clock.now)

        await run.scope(f"work {run.attempt}", work)

    assert serve(served, place, clock, slow)
    assert waiting(place) == [], "the one of the 23rd waited, and stood for the one of the 24th"
    make(place, KEPT)
    clock.at(25, 9.01)

    @agent
    async def slower(run: Run) -> None:
        async def work() -> None:
            if run.attempt == 2:
                clock.at(26, 9.01)
                served.look(clock.now)

        await run.scope(f"work {run.attempt}", work)

    assert serve(served, place, clock, slower) and waiting(place) == []
    done = [key for key in look_at(DiskStore(place)).moment.root.results if key.startswith("_work")]
    assert done == ["_work 1", "_work 2", "_work 3"], "the one of the 26th starts the agent again"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("ahead", [timedelta(hours=1), 400 * DAY])
@pytest.mark.parametrize("who", [noting, deaf])
def test_a_start_whose_clock_ran_ahead_silences_the_schedule(
    place: Path, clock: Clock, ahead: timedelta, who: Any
) -> None:
    make(place, "schedule: [{cron: '*/10 * * * *', name: often}]\n")
    clock.now += ahead
    run(place, who)
    clock.now = NOON + timedelta(minutes=1)
    for new in (False, True):  # one `serve` all the time, or one from cron each time
        served, starts, said = Schedule(DiskStore(place), clock.now), 0, list[str]()
        for _ in range(30):
            clock.now += timedelta(minutes=1)
            served = Schedule(DiskStore(place), clock.now) if new else served
            said += served.look(clock.now)
            starts += serve(served, place, clock, who) is not None
        assert starts in (3, 4), "each of the three times, and perhaps the one before the first look"
        assert new or [text for text in said if "is in the future" in text]


def test_a_task_of_a_clock_that_ran_ahead_silences_the_schedule(place: Path, clock: Clock) -> None:
    """The clock of `serve` itself: it has made a task of next year, which was done."""
    served = Schedule(DiskStore(place), NOON)
    served.look(clock.now)
    clock.now = NOON + 400 * DAY
    assert serve(served, place, clock)
    for later in (served, Schedule(DiskStore(place), NOON)):
        clock.at(23, 8) if later is served else clock.at(24, 8)
        serve(later, place, clock)  # perhaps for the time before
        before = len(data(place)["jobs"])
        clock.now += timedelta(hours=2)
        assert serve(later, place, clock)
        assert len(data(place)["jobs"]) == before + 1
        assert serve(later, place, clock) is None
    jobs = data(place)["jobs"]
    assert len(jobs) == len(set(jobs))


def test_a_clock_that_is_a_little_ahead_repeats_the_last_job(place: Path, clock: Clock) -> None:
    """Two machines that serve one folder never agree to the second."""
    ahead, behind = (Schedule(DiskStore(place), NOON) for _ in range(2))
    ahead.look(clock.now), behind.look(clock.now)
    for day in (23, 24):
        clock.at(day, 9)
        assert serve(ahead, place, clock)
        clock.now -= timedelta(seconds=30)
        assert serve(behind, place, clock) is None
        assert serve(Schedule(DiskStore(place), clock.now), place, clock) is None
        clock.now += timedelta(minutes=1)
        assert serve(behind, place, clock) is None
    assert len(data(place)["jobs"]) == 2


def test_two_of_one_name_or_a_time_that_is_none_is_not_refused(place: Path, clock: Clock) -> None:
    two = "schedule:\n  - cron: 0 9 * * *\n  - {cron: 0 8 * * *, name: '1'}\n"
    for schedule, said in ((two, "a name of its own"), ("schedule: [{cron: 0 25 * * *}]\n", "a bad hour")):
        make(place, schedule)
        with pytest.raises(InvalidFile, match=said):
            Schedule(DiskStore(place), NOON).look(NOON + DAY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "due: 2026-11-23T09:00:00Z\n",
        "schedule: a\ndue: today\n",
        "schedule: a\ndue: 2026-11-23\nx: 1\n",
        "schedule: a\ndue: 2026-11-23T09:00:00\n",
        "schedule: [a]\ndue: 2026-11-23T09:00:00Z\n",
        "schedule: a\ndue: 0001-01-01T00:00:00+23:00\n",
    ],
)
def test_a_person_s_own_task_of_a_schedule_stops_the_run(text: str) -> None:
    with pytest.raises(InvalidFile):
        inbox.parse("inbox/a.yaml", f"kind: schedule\n{text}".encode())
    found = inbox.parse("inbox/a.yaml", b"kind: schedule\nschedule: a\ndue: 2026-11-23T10:00:00+01:00\n")
    assert found.firing and found.firing.due == "2026-11-23T09:00:00Z"
