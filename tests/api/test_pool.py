"""`Pool`: many runs on one loop. Nothing is lost at its end, at a signal or at a kill, and no run ends another."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import warm
from waits import PATIENCE

import satchel
from satchel import Run, UsageError, agent, effect, step
from satchel.results import ServeEvent
from satchel.runtime.live import notices
from satchel.workspace.base import LeaseHeld

Make = Callable[..., Path]

NOT_DUE = "schedule: [{cron: '0 0 1 1 *', wait: true}]\n"
"""A run that no look starts."""

FILE_AGENT = """
from satchel import Run, agent, step

@step
async def shout(text: str) -> str:
    with open("{called}", "a") as file:
        file.write(text + " ")
    return text.upper()

@agent
async def main(run: Run, text: str = "hello") -> str:
    return await shout(text)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def make(root: Path, tmp_path: Path) -> Make:
    """A run below the root, whose calls are in `called`."""

    def made(name: str, *, code: str = FILE_AGENT, extra: str = "") -> Path:
        (root / name).mkdir()
        (root / name / "agent.py").write_text(code.replace("{called}", str(tmp_path / "called")))
        (root / name / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}\nagent: agent.py:main\n{extra}")
        return root / name

    return made


def called(root: Path) -> list[str]:
    file = root.parent / "called"
    return sorted(file.read_text().split()) if file.exists() else []


def states(root: Path) -> list[str]:
    return [each.state for each in satchel.ls(root)]


def play(play: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(play, PATIENCE))  # type: ignore[arg-type]


class Told:
    """The events of a pool."""

    def __init__(self) -> None:
        self.events: list[ServeEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: ServeEvent) -> None:
        assert threading.current_thread() is threading.main_thread(), "it is called on the loop"
        self.events.append(event)
        self._news.set()

    async def until(self, kind: str) -> ServeEvent:
        while not (found := [event for event in self.events if event.kind == kind]):
            self._news.clear()
            await self._news.wait()
        return found[-1]

    def kinds(self, folder: Path) -> list[str]:
        return [event.kind for event in self.events if Path(event.folder) == folder]


def test_what_an_earlier_program_has_left_stays_as_it_is(make: Make, root: Path) -> None:
    new, paused = make("new"), make("paused")
    satchel.open(paused).pause()
    killed = make("killed", code=FILE_AGENT.replace("text.upper()", "__import__('os')._exit(9)"))
    assert warm.run([sys.executable, "-c", f"import satchel; satchel.run({str(killed)!r})"]).returncode == 9
    (killed / "agent.py").write_text((new / "agent.py").read_text())
    assert satchel.open(killed).status().state == "interrupted"

    async def played() -> None:
        async with satchel.Pool(root) as pool:
            await pool.wait()

    play(played())
    assert {Path(each.folder).name: each.state for each in satchel.ls(root)} == {
        "killed": "completed",
        "new": "completed",
        "paused": "paused",
    }
    assert called(root) == ["hello"] * 3, "once by the killed process"


def test_more_run_at_once_than_may(make: Make, root: Path) -> None:
    at_work, most = 0, 0

    @step
    async def work() -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1

    @agent
    async def main(run: Run[Any]) -> str:
        await work()
        return run.folder

    async def played() -> None:
        folders = [make(f"r{number}", extra=NOT_DUE) for number in range(6)]
        async with satchel.Pool(root, main, at_most=2) as pool:
            outcomes = await asyncio.gather(*(pool.run(folder) for folder in folders))
        assert [outcome.result for outcome in outcomes] == [str(folder) for folder in folders]

    play(played())
    assert 1 <= most <= 2


def test_a_notice_that_is_not_taken_keeps_the_next_run_waiting(
    make: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "whsec_c2VzYW1l")
    for name in ("AT_THE_END", "LIMIT", "_PATIENCE"):
        monkeypatch.setattr(notices, name, 1000.0)
    monkeypatch.setattr(notices, "PAUSES", ())

    async def played() -> None:
        told = Told()
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
            make("a", extra=f"{NOT_DUE}notify: [{{webhook: '{url}', secret: '${{KEY}}'}}]\n")
            async with satchel.Pool(root, at_most=1, tell=told) as pool:
                first = await pool.start(root / "a")
                assert (await pool.run(make("b", extra=NOT_DUE))).status == "completed"
                assert not first.done()
                deaf.close()
                assert (await first).status == "completed"

    play(played())


def test_more_of_a_group_run_at_once_than_may(make: Make, root: Path) -> None:
    at_work: list[str] = []

    @step
    async def work(group: str) -> None:
        assert group not in at_work
        at_work.append(group)
        await asyncio.sleep(0)
        at_work.remove(group)

    @agent
    async def main(run: Run[Any]) -> None:
        await work(os.path.basename(run.folder)[0])

    async def played() -> None:
        folders = [make(f"{group}{number}", extra=f"{NOT_DUE}group: {group}\n") for group in "ab" for number in "123"]
        async with satchel.Pool(root, main, group_limits={"*": 1}) as pool:
            outcomes = await asyncio.gather(*(pool.run(folder) for folder in folders))
        assert {outcome.status for outcome in outcomes} == {"completed"}, outcomes

    play(played())
    with pytest.raises(UsageError, match="the group 'a'"):
        satchel.Pool(root, group_limits={"a": 0})


def test_what_a_pool_finds_after_it_was_idle_is_not_waited_for(make: Make, root: Path) -> None:
    make("first")

    async def played() -> None:
        async with satchel.Pool(root) as pool:
            await pool.wait()
            assert states(root) == ["completed"]
            make("second")
            await pool.wait()
            assert states(root) == ["completed", "completed"]

    play(played())


def test_an_error_of_one_run_ends_the_others(make: Make, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("broken", code="import nothing_of_this_name\n")
    make("exits", code=FILE_AGENT.replace("return await shout(text)", "raise SystemExit(3)"))
    make("fails", code=FILE_AGENT.replace("return await shout(text)", "raise ValueError('no')"))
    make("good")
    (root / "damaged").mkdir()
    (root / "damaged/workspace.yaml").write_text("format: 1\nrun_id: [\n")

    async def played() -> None:
        async with satchel.Pool(root) as pool:
            await pool.wait()
            exited = await pool.run(root / "exits")
            assert exited.status == "failed" and "ended the process" in str(exited.error)
            failed = await pool.run(root / "fails")
            assert failed.status == "failed" and str(failed.error) == "no"

    with caplog.at_level(logging.WARNING, logger="satchel"):
        play(played())
    assert called(root) == ["hello"]
    for name in ("broken", "exits", "fails", "damaged"):
        assert any(name in record.getMessage() for record in caplog.records), "it is said without a `tell`"


def test_the_end_of_the_block_loses_work(make: Make, root: Path) -> None:
    begun = asyncio.Event()
    made: list[str] = []

    @effect
    async def first() -> str:
        made.append("first")
        begun.set()
        await asyncio.sleep(1.0)  # the end of the block comes meanwhile
        return "1"

    @effect
    async def second() -> str:
        made.append("second")
        return "2"

    @agent
    async def main(run: Run[Any]) -> str:
        return await first() + await second()

    async def played() -> None:
        folder, other = make("one", extra=NOT_DUE), make("two", extra=NOT_DUE)
        told = Told()
        async with satchel.Pool(root, main, at_most=1, tell=told) as pool:
            waiting = await pool.start(folder)
            left = await pool.start(other)
            await begun.wait()
        assert (await waiting).status == "paused" and made == ["first"], "an effect that has begun ends"
        assert states(root) == ["paused", "new"]
        with pytest.raises(satchel.Refused, match="begins nothing any more"):
            await left
        with pytest.raises(satchel.Refused, match="begins nothing any more"):
            await pool.start(other)
        async with satchel.Pool(root, main) as again:
            both = await asyncio.gather(again.run(folder), again.run(other))
        assert [outcome.result for outcome in both] == ["12", "12"]
        assert sorted(made) == ["first", "first", "second", "second"]

    play(played())


def test_an_answer_is_not_taken_until_somebody_asks_for_a_start(make: Make, root: Path) -> None:
    folder = make("asks", code=ASKS)

    async def played() -> None:
        told = Told()
        async with satchel.Pool(root, tell=told) as pool:
            await told.until("waiting")
            await pool.wait()
            await satchel.open(folder).answer_async("yes")
            await told.until("completed")

    play(played())
    assert satchel.open(folder).result.returned == "yes"


def test_a_start_of_a_running_run_gets_lost(make: Make, root: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @agent
    async def main(run: Run[Any]) -> int:
        begun.set()
        await go.wait()
        return 7

    async def played() -> None:
        folder = make("one", extra=NOT_DUE)
        async with satchel.Pool(root, main) as pool:
            first = await pool.start(folder)
            await begun.wait()
            second = await pool.start(folder)
            assert not second.done()
            go.set()
            assert ((await first).result, (await second).result) == (7, 7)
            assert (await first).entered and not (await second).entered

    play(played())


def test_a_place_that_no_later_pool_would_find_is_taken(make: Make, root: Path, tmp_path: Path) -> None:
    (tmp_path / "runs-2").mkdir()

    async def played() -> None:
        async with satchel.Pool(root) as pool:
            for place in (tmp_path / "runs-2", tmp_path):
                with pytest.raises(UsageError, match="not below the root"):
                    await pool.start(place)
            with pytest.raises(satchel.SatchelError, match="no such folder"):
                await pool.start(root / "nothing")
        with pytest.raises(UsageError, match="used once"):
            await pool.__aenter__()

    play(played())
    with pytest.raises(UsageError, match="at_most"):
        satchel.Pool(root, at_most=0)
    with pytest.raises(UsageError, match="no such folder"):
        play(entered(satchel.Pool(tmp_path / "no")))
    with pytest.raises(UsageError, match="not open"):
        asyncio.run(satchel.Pool(root).start(root))


async def entered(pool: satchel.Pool) -> None:
    async with pool:
        pass


def test_syncs_and_openings_stop_the_loop(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, on_loop = threading.get_ident(), []

    def noted(call: Callable[[int], None], fd: int) -> None:
        if threading.get_ident() == here:
            on_loop.append(os.readlink(f"/proc/self/fd/{fd}"))
        call(fd)

    for name in ("fsync", "fdatasync"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, call=call: noted(call, fd))
    make("one", code=PLANNED)

    async def played() -> None:
        async with satchel.Pool(root) as pool:
            await pool.wait()

    play(played())
    assert states(root) == ["completed"]
    assert on_loop == []


ASKS = """
from satchel import Run, agent

async def asked(run: Run) -> str:
    return (await run.ask("Go?", ["yes", "no"])).decision

@agent
async def main(run: Run) -> str:
    return await run.scope("ask", asked, run)
"""

PLANNED = """
from satchel import Run, agent, step

@step
async def think(text: str) -> str:
    return text

async def work(run, item):
    run.state[item.id] = await think(item.text)

@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Work", ["one", "two", "three"])
    await run.todo.each(work)
"""

PROGRAM = """
import asyncio, os, sys, time
import satchel

async def main() -> None:
    try:
        async with satchel.Pool(sys.argv[1], at_most=1) as pool:
            await pool.start(sys.argv[1] + "/one")
            made = await satchel.new_async(sys.argv[2], sys.argv[1] + "/two", input={"text": "from a request"})
            await pool.start(made.folder)
            print("started", flush=True)
            await asyncio.Event().wait()
    finally:
        print("ended", flush=True)
    print("and on", flush=True)

asyncio.run(main())
"""

WAITING = """
import asyncio, pathlib
from satchel import Run, agent, step

@step
async def wait() -> str:
    pathlib.Path("{called}").write_text("waits ")
    await asyncio.sleep(0.5)
    return "waited"

@step
async def then(text: str) -> str:
    return text

@agent
async def main(run: Run, text: str = "hello") -> str:
    await wait()
    return await then(text)
"""


@pytest.fixture
def program(make: Make, root: Path) -> Any:
    make("one", code=WAITING)
    template = make("two").rename(root.parent / "template")
    return warm.Popen([sys.executable, "-c", PROGRAM, str(root), str(template)], stdout=subprocess.PIPE, text=True)


def reads(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdout and program.stdout.readline() == f"{line}\n"


def test_a_kill_loses_what_a_program_was_told_to_be_started(program: Any, root: Path) -> None:
    reads(program, "started")
    program.kill()
    program.communicate()
    assert "completed" not in states(root)

    async def played() -> None:
        async with satchel.Pool(root) as pool:
            await pool.wait()

    play(played())
    assert [satchel.open(root / name).result.returned for name in ("one", "two")] == ["hello", "FROM A REQUEST"]


def test_sigterm_ends_a_program_without_a_drain(program: Any, root: Path) -> None:
    reads(program, "started")
    while called(root) != ["waits"]:
        assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    reads(program, "ended")
    reads(program, "and on")
    assert program.wait(60) == 0
    program.communicate()
    one, two = satchel.ls(root)
    assert (one.state, two.state) == ("paused", "new")
    assert [row.record["step"] for row in satchel.open(root / "one").history.log(type="step.completed")] == ["wait"]


def test_the_second_cancellation_waits_for_running_work(make: Make, root: Path) -> None:
    begun = asyncio.Event()

    @step
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @agent
    async def main(run: Run[Any]) -> None:
        await endless()

    async def block(folder: Path) -> None:
        async with satchel.Pool(root, main) as pool:
            await pool.run(folder)

    async def played() -> None:
        folder = make("one")
        task = asyncio.create_task(block(folder))
        await begun.wait()
        task.cancel()
        async for event in satchel.open(folder).events(follow=True):
            if isinstance(event, satchel.events.PauseRequested):
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert states(root) == ["paused"]

    play(played())


def test_a_run_that_another_process_has_is_taken(make: Make, root: Path) -> None:
    may_end = root.parent / "may-end"
    waits = f"while not pathlib.Path({str(may_end)!r}).exists(): await asyncio.sleep(0.01)"
    folder = make("one", code=WAITING.replace("await asyncio.sleep(0.5)", waits))

    async def played() -> None:
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"import satchel; satchel.run({str(folder)!r})"
        )
        async for event in satchel.open(folder).events(follow=True):
            if isinstance(event, satchel.events.RunStarted):
                break
        async with satchel.Pool(root) as pool:
            with pytest.raises(LeaseHeld):
                await pool.run(folder)
        may_end.touch()
        assert await holder.wait() == 0

    play(played())
    assert states(root) == ["completed"]
