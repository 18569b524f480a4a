"""`satchel.due`: what should run now, for a program with an engine of its own; and a run that is started again."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import warm

import satchel
from satchel import Run, SatchelError, UsageError, agent
from satchel.results import DueLook, DueRun, ServeEvent
from satchel.runtime.supervision.roots import FolderRoot
from satchel.runtime.supervision.run_server import Server
from satchel.workspace.base import LeaseHeld

from .supervised import PATIENCE, wait_until

Make = Callable[..., Path]

COUNTING = """
from satchel import Run, agent, effect

@effect
async def note() -> None:
    with open("{called}", "a") as file:
        file.write("x")

@agent
async def main(run: Run) -> str:
    await note()
    return "done"
"""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(name: str, *, code: str = COUNTING, extra: str = "") -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "agent.py").write_text(code.replace("{called}", str(tmp_path / "called")))
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}\nagent: agent.py:main\n{extra}")
        return folder

    return made


def once(root: Path, tell: Callable[[ServeEvent], None] | None = None) -> DueLook:
    async def looked() -> DueLook:
        return [look async for look in satchel.due(root, once=True, tell=tell)][-1]

    return asyncio.run(asyncio.wait_for(looked(), PATIENCE))


def names(look: DueLook) -> list[str]:
    return [each.run_id for each in look.runs]


def one(root: Path) -> DueRun:
    (found,) = once(root).runs
    return found


@agent
async def sleeper(run: Run[Any]) -> None:
    await run.sleep(timedelta(days=30).total_seconds())


@agent
async def asker(run: Run[Any]) -> None:
    await run.ask("Go on?", choices=["yes", "no"], wait_for=0)


@agent
async def failing(run: Run[Any]) -> None:
    raise ValueError("a person has to look")


def test_it_judges_otherwise_than_serve(make: Make, tmp_path: Path) -> None:
    satchel.open(make("paused")).pause()
    satchel.run(make("sleeping"), sleeper)
    satchel.run(make("waiting"), asker)
    satchel.run(make("failed"), failing)
    satchel.run(make("completed"))
    satchel.run(make("answered"), asker)
    satchel.open(tmp_path / "runs/answered").answer("yes")
    satchel.run(make("tasked"))
    satchel.open(tmp_path / "runs/tasked").send("more")
    killed = make("killed", code=COUNTING.replace('return "done"', "__import__('os')._exit(9)"))
    assert warm.run([sys.executable, "-c", f"import satchel; satchel.run({str(killed)!r})"]).returncode == 9
    make("new")
    (make("damaged") / "workspace.yaml").write_text("run_id: [\n")
    told: list[ServeEvent] = []
    found = once(tmp_path / "runs", told.append)
    server = Server(str(tmp_path / "runs"), 1, lambda event: None)
    server._lookout.look()
    assert {*names(found)} == {known.run_id for known in server.left} == {"answered", "killed", "new", "tasked"}
    assert [(each.kind, Path(each.folder).name) for each in told] == [("damaged", "damaged")]
    assert found.next_at is not None and found.next_at > datetime.now(UTC) + timedelta(days=29)
    whys = {each.run_id: each.why for each in found.runs}
    assert whys == {
        "answered": "no question is open any more",
        "killed": "interrupted",
        "new": "new",
        "tasked": "a task in its inbox",
    }
    assert [each.since for each in found.runs] == sorted(each.since for each in found.runs)


def test_two_dispatchers_name_one_start_otherwise(make: Make, tmp_path: Path) -> None:
    folder = make("a")
    new = one(tmp_path / "runs")
    assert one(tmp_path / "runs") == new and new.opening == "" and new.url == str(folder)
    assert one(folder).key == new.key, "also from another root"
    (folder / "agent.py").write_text(COUNTING)
    edited = one(tmp_path / "runs")
    assert edited.key != new.key and edited.signature != new.signature


def test_a_run_that_was_opened_since_has_the_name_of_its_former_start(make: Make, tmp_path: Path) -> None:
    folder = make("a", code=COUNTING.replace('return "done"', "__import__('os')._exit(9)"))
    keys = set()
    for _ in range(2):
        keys.add(one(tmp_path / "runs").key)
        assert warm.run([sys.executable, "-c", f"import satchel; satchel.run({str(folder)!r})"]).returncode == 9
    assert one(tmp_path / "runs").opening and len({*keys, one(tmp_path / "runs").key}) == 3


def test_the_tasks_of_a_schedule_are_not_made(make: Make, tmp_path: Path) -> None:
    folder = make("a", extra="schedule: [{every: 1h, name: hourly}]\n")
    found = once(tmp_path / "runs")
    assert [path.name[:15] for path in (folder / "inbox").iterdir()] == ["schedule-hourly"]
    assert names(found) == ["a"] and found.next_at is not None
    assert found.next_at <= datetime.now(UTC) + timedelta(hours=1)


def test_a_run_that_the_end_of_its_worker_has_paused_is_lost_until_the_dispatcher_restarts(
    make: Make, tmp_path: Path
) -> None:
    make("b", extra="schedule: [{cron: '0 0 1 1 *', wait: true}]\n")
    waiting = COUNTING.replace('return "done"', "await __import__('asyncio').sleep(900)")

    async def played() -> None:
        looks = satchel.due(tmp_path / "runs")
        assert (await anext(looks)).runs == ()
        folder = make("a", code=waiting)
        while not (await anext(looks)).runs:
            pass
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"import satchel; satchel.run({str(folder)!r})"
        )
        await asyncio.to_thread(wait_until, (tmp_path / "called").exists)
        assert (await anext(looks)).runs == (), "it runs"
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
        assert satchel.open(folder).status().state == "paused"
        while not (found := (await anext(looks)).runs):
            pass
        assert found[0].why == "it was stopped by a signal"
        satchel.open(folder).pause(reason="a person")
        while (await anext(looks)).runs:
            pass
        await looks.aclose()

    asyncio.run(asyncio.wait_for(played(), PATIENCE))


def test_a_run_that_was_started_elsewhere_runs_twice(make: Make, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiting = COUNTING.replace(
        'return "done"',
        f"while not __import__('os').path.exists({str(gate)!r}): await __import__('asyncio').sleep(0.01)\n"
        '    return "done"',
    )
    folder = make("a", code=waiting)
    first = warm.Popen([sys.executable, "-c", f"import satchel; satchel.run({str(folder)!r})"], text=True)
    try:
        wait_until((tmp_path / "called").exists, first)
        with pytest.raises(LeaseHeld):
            satchel.run(folder)
        gate.touch()
        assert first.wait(PATIENCE) == 0
    finally:
        first.kill()
        first.wait()
    before = [path.read_bytes() for path in (folder / "journal").iterdir()]
    assert satchel.run(folder).status == "completed"
    assert [path.read_bytes() for path in (folder / "journal").iterdir()] == before, "nothing was begun"
    assert (tmp_path / "called").read_text() == "x" and once(tmp_path / "runs").runs == ()


def test_a_root_that_is_away_for_a_moment_ends_the_looks(make: Make, tmp_path: Path) -> None:
    make("a")
    told: list[str] = []

    async def played() -> None:
        looks = satchel.due(tmp_path / "runs", tell=lambda event: told.append(event.kind))
        assert names(await anext(looks)) == ["a"]
        shutil.move(tmp_path / "runs", tmp_path / "away")
        while not told:
            await anext(looks)
        shutil.move(tmp_path / "away", tmp_path / "runs")
        assert names(await anext(looks)) == ["a"]
        await looks.aclose()

    asyncio.run(asyncio.wait_for(played(), PATIENCE))
    assert told == ["damaged"]


def test_looking_goes_on_although_its_task_is_cancelled(make: Make, tmp_path: Path) -> None:
    make("a")
    seen: list[str] = []

    async def played() -> None:
        async def dispatch() -> None:
            async for look in satchel.due(tmp_path / "runs"):
                seen.extend(names(look))

        task = asyncio.create_task(dispatch())
        await asyncio.to_thread(wait_until, lambda: seen)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(asyncio.wait_for(played(), PATIENCE))


def test_a_wrong_root_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="root can't be 7"):
        satchel.due(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tell"):
        satchel.due(tmp_path, tell="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no such folder"):
        once(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(SatchelError, match="is a file"):
        once(tmp_path / "file")


def test_a_root_that_can_t_be_looked_at_for_a_moment_has_nothing_due(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("a")
    folders, failures, told = FolderRoot.folders, [OSError(5, "Input/output error")], list[ServeEvent]()

    def failing(root: FolderRoot) -> Iterator[tuple[str, str]]:
        if failures:
            raise failures.pop()
        return folders(root)

    monkeypatch.setattr(FolderRoot, "folders", failing)
    assert names(once(tmp_path / "runs", told.append)) == ["a"]
    assert [each.kind for each in told] == ["damaged"]
