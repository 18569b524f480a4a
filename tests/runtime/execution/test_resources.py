"""Resources: opened before the agent, released after it, each once, in order, with a time limit and an outcome."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import warm
from waits import PATIENCE

from satchel import Item, Resource, Run, agent, run, run_async, step
from satchel.workspace import journal
from satchel.workspace.base.errors import UsageError
from satchel.workspace.store import DiskStore

Told = tuple[str, str, str]


def recorded(workspace: Path) -> list[Told]:
    lines = journal.read(DiskStore(workspace), after=0).lines
    found = [line.record for line in lines]
    return [(each.name, each.event, each.outcome) for each in found if isinstance(each, journal.ResourceChanged)]


def reasons(workspace: Path) -> list[str]:
    return [
        line.record.why
        for line in journal.read(DiskStore(workspace), after=0).lines
        if isinstance(line.record, journal.ResourceChanged) and line.record.why
    ]


class Plain:
    """An object with close(), in a kind a test asks for."""

    def __init__(self, calls: list[str], name: str):
        self.calls, self.name = calls, name
        calls.append(f"open {name}")

    def close(self) -> None:
        self.calls.append(f"close {self.name}")


def plain(calls: list[str], name: str, **options: Any) -> Resource:
    return Resource(name, lambda: Plain(calls, name), **options)


def agent_of(*resources: Resource, calls: list[str] | None = None) -> Any:
    @agent(resources=resources)
    async def main(run: Run[Any]) -> list[str]:
        if calls is not None:
            calls.append("agent")
        return list(run.resources)

    return main


def test_tiers_are_opened_in_the_opposite_order_of_their_release(workspace: Path, calls: list[str]) -> None:
    main = agent_of(
        plain(calls, "app1"),
        plain(calls, "infra", tier="infrastructure"),
        plain(calls, "proc", tier="process"),
        plain(calls, "app2"),
        calls=calls,
    )
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", ["proc", "infra", "app1", "app2"])
    opened = ["open proc", "open infra", "open app1", "open app2"]
    assert calls == [*opened, "agent", "close app2", "close app1", "close infra", "close proc"]
    events = recorded(workspace)
    assert [name for name, event, _ in events if event == "released"] == ["app2", "app1", "infra", "proc"]
    assert {outcome for _, _, outcome in events} == {"ok"} and len(events) == 8


def kinds(calls: list[str]) -> dict[str, Any]:
    @contextmanager
    def by_generator() -> Iterator[str]:
        calls.append("open")
        try:
            yield "object"
        finally:
            calls.append("close")

    @asynccontextmanager
    async def by_async_generator() -> AsyncIterator[str]:
        calls.append("open")
        try:
            yield "object"
        finally:
            await asyncio.sleep(0)
            calls.append("close")

    class Closing:
        def __init__(self) -> None:
            calls.append("open")

        def close(self) -> None:
            assert threading.current_thread() is not threading.main_thread()
            calls.append("close")

    class AsyncClosing:
        def __init__(self) -> None:
            calls.append("open")

        async def aclose(self) -> None:
            calls.append("close")

    class Manager:
        def __enter__(self) -> str:
            calls.append("open")
            return "object"

        def __exit__(self, *error: object) -> None:
            calls.append("close")

    class AsyncManager:
        def __init__(self) -> None:
            asyncio.get_running_loop()  # as aiohttp's session does

        async def __aenter__(self) -> str:
            calls.append("open")
            return "object"

        async def __aexit__(self, *error: object) -> None:
            calls.append("close")

    async def by_coroutine() -> Closing:
        opened = Closing.__new__(Closing)
        calls.append("open")
        opened.close = lambda: calls.append("close")  # type: ignore[method-assign]
        return opened

    def with_run(run: Run[Any]) -> Manager:
        assert run.settings == {} and run.folder
        return Manager()

    return {
        "contextmanager": by_generator,
        "asynccontextmanager": by_async_generator,
        "close": Closing,
        "aclose": AsyncClosing,
        "manager": Manager,
        "async manager": AsyncManager,
        "coroutine": by_coroutine,
        "run": with_run,
        "lambda of an async one": lambda: AsyncClosing(),
    }


@pytest.mark.parametrize("kind", kinds([]))
def test_each_kind_is_closed_as_often_as_opened(workspace: Path, calls: list[str], crash: Any, kind: str) -> None:
    factory = kinds(calls)[kind]

    @agent(resources=[Resource("it", factory)])
    async def main(run: Run[Any]) -> None:
        assert calls[-1] == "open" and run.resources["it"] is not None
        if run.attempt == 1:
            raise ValueError("the agent fails")
        if run.attempt == 2:
            raise crash

    assert run(workspace, main).status == "failed"
    assert calls == ["open", "close"]
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "completed"
    assert calls == ["open", "close"] * 3


def test_a_connection_of_sqlite_is_closed_not_only_committed(workspace: Path, tmp_path: Path) -> None:
    held: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "db", check_same_thread=False)

    @agent(resources=[Resource("db", connect, check=lambda db: db.execute("select 1").fetchone())])
    async def main(run: Run[Any]) -> Any:
        held.append(run.resources["db"])
        return held[0].execute("select 7").fetchone()[0]

    assert run(workspace, main).result == 7
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        held[0].execute("select 1")


def test_one_that_can_not_be_opened_leaves_the_run_paused_and_the_others_released(
    workspace: Path, calls: list[str]
) -> None:
    def refuse() -> None:
        raise ConnectionRefusedError("nobody listens")

    main = agent_of(plain(calls, "base", tier="process"), Resource("db", refuse), plain(calls, "never"), calls=calls)
    outcome = run(workspace, main)
    assert outcome.status == "paused"
    assert calls == ["open base", "close base"]
    state = (workspace / "state.json").read_text()
    assert "resource db is not available: ConnectionRefusedError: nobody listens" in state
    assert recorded(workspace) == [("base", "opened", "ok"), ("db", "opened", "failed"), ("base", "released", "ok")]
    assert run(workspace, agent_of(plain(calls, "base"), calls=calls), wake=True).status == "completed"


@pytest.mark.parametrize("kind", ["false", "raises", "async false", "hangs", "async hangs"])
def test_one_that_is_not_healthy_is_released_and_the_run_paused(workspace: Path, calls: list[str], kind: str) -> None:
    let_go = threading.Event()

    def raising(opened: Any) -> None:
        raise OSError("disk full")

    async def not_well(opened: Any) -> bool:
        return False

    async def for_ever(opened: Any) -> None:
        await asyncio.Event().wait()

    checks: dict[str, Any] = {
        "false": lambda opened: False,
        "raises": raising,
        "async false": not_well,
        "async hangs": for_ever,
        "hangs": lambda opened: let_go.wait(60),
    }
    main = agent_of(plain(calls, "db", check=checks[kind], timeout=0.3), calls=calls)
    outcome = run(workspace, main)
    let_go.set()
    assert outcome.status == "paused" and "agent" not in calls
    expected = {"false": "is not healthy", "async false": "is not healthy", "raises": "OSError: disk full"}
    assert expected.get(kind, "did not answer within 0.3 s") in reasons(workspace)[0]
    assert recorded(workspace)[0] == ("db", "opened", "timed_out" if "hangs" in kind else "failed")
    if kind != "hangs":  # a thread that hangs in the check can't close it in time
        assert calls == ["open db", "close db"]
        assert recorded(workspace)[1] == ("db", "released", "ok")


def test_a_check_that_returns_nothing_is_content(workspace: Path, calls: list[str]) -> None:
    assert run(workspace, agent_of(plain(calls, "db", check=lambda opened: None))).status == "completed"


class Request:
    """As `session.get(url)` of an HTTP client: it can be awaited, or entered. It comes to an error."""

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        raise ConnectionRefusedError("nobody listens")

    async def __aenter__(self) -> None:
        await self

    async def __aexit__(self, *error: Any) -> None:
        pass


def test_a_check_that_can_be_awaited_and_entered_is_awaited(workspace: Path, calls: list[str]) -> None:
    outcome = run(workspace, agent_of(plain(calls, "api", check=lambda opened: Request()), calls=calls))
    assert outcome.status == "paused" and calls == ["open api", "close api"]
    assert "its check failed: ConnectionRefusedError: nobody listens" in reasons(workspace)[0]


def test_a_close_that_can_be_awaited_and_entered_is_awaited(workspace: Path) -> None:
    class Client:
        def close(self) -> Request:
            return Request()

    assert run(workspace, agent_of(Resource("api", Client))).status == "completed"
    assert recorded(workspace) == [("api", "opened", "ok"), ("api", "released", "failed")]


def test_a_release_that_fails_stops_neither_the_others_nor_the_outcome(workspace: Path, calls: list[str]) -> None:
    @contextmanager
    def failing() -> Iterator[None]:
        yield
        raise OSError("it will not close")

    main = agent_of(plain(calls, "first"), Resource("bad", failing), plain(calls, "last"))
    outcome = run(workspace, main)
    assert outcome.status == "completed" and outcome.result == ["first", "bad", "last"]
    assert calls == ["open first", "open last", "close last", "close first"]
    assert ("bad", "released", "failed") in recorded(workspace)
    assert "bad was not released properly: OSError: it will not close" in outcome.report.late[0].text


@pytest.mark.parametrize("how", ["thread", "async", "stubborn"])
def test_a_release_that_hangs_is_left_behind(workspace: Path, calls: list[str], how: str) -> None:
    let_go, held = threading.Event(), []

    @contextmanager
    def hanging() -> Iterator[None]:
        yield
        held.append(not let_go.wait(PATIENCE))

    @asynccontextmanager
    async def hanging_async() -> AsyncIterator[None]:
        yield
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if how == "async":
                    raise

    factory = hanging if how == "thread" else hanging_async
    main = agent_of(plain(calls, "first"), Resource("bad", factory, timeout=0.2))
    outcome = run(workspace, main)
    assert outcome.status == "completed" and not held
    let_go.set()
    assert calls == ["open first", "close first"]
    assert ("bad", "released", "timed_out") in recorded(workspace)


def time_out(workspace: Path, factory: Any, began: threading.Event) -> None:
    """A run whose resource was being opened when its time was over. On a busy machine it may not have begun by then:
    such a one is never opened."""
    for timeout in (0.2, 2.0, 20.0):
        place = shutil.copytree(workspace, workspace.with_name(f"with {timeout} s"))
        assert run(place, agent_of(Resource("slow", factory, timeout=timeout))).status == "paused"
        assert recorded(place) == [("slow", "opened", "timed_out")]
        if began.is_set():
            return
    raise AssertionError("it did not begin within 20 s")


def test_one_that_opens_too_late_is_closed_when_it_does(workspace: Path, calls: list[str]) -> None:
    began, let_go, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def __enter__(self) -> None:
            began.set()
            let_go.wait(60)
            calls.append("open")

        def __exit__(self, *error: object) -> None:
            calls.append("close")
            closed.set()

    time_out(workspace, Slow, began)
    assert calls == []
    let_go.set()
    assert closed.wait(PATIENCE) and calls == ["open", "close"]


def test_an_object_made_too_late_is_closed(workspace: Path, calls: list[str]) -> None:
    began, let_go, closed = threading.Event(), threading.Event(), threading.Event()

    class Late(Plain):
        def close(self) -> None:
            super().close()
            closed.set()

    def make() -> Late:
        began.set()
        let_go.wait(60)
        return Late(calls, "late")

    time_out(workspace, make, began)
    let_go.set()
    assert closed.wait(PATIENCE) and calls == ["open late", "close late"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopIteration])
def test_nothing_is_left_open_when_opening_ends_the_process(workspace: Path, calls: list[str], error: Any) -> None:
    def ends() -> None:
        raise error

    main = agent_of(plain(calls, "base", tier="process"), Resource("db", ends), calls=calls)
    if error is StopIteration:
        assert run(workspace, main).status == "paused"
    else:
        with pytest.raises(error):
            run(workspace, main)
    assert calls == ["open base", "close base"]


def test_a_cancellation_while_opening_leaves_nothing_open(workspace: Path, calls: list[str]) -> None:
    at_it = threading.Event()

    class Slow:
        def __enter__(self) -> None:
            at_it.set()
            time.sleep(0.2)  # is over within the time limit, but after the cancellation
            calls.append("open slow")

        def __exit__(self, *error: object) -> None:
            calls.append("close slow")

    main = agent_of(plain(calls, "base", tier="process"), Resource("slow", Slow), calls=calls)

    async def cancelled() -> None:
        task = asyncio.create_task(run_async(workspace, main))
        await asyncio.to_thread(at_it.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert calls == ["open base", "open slow", "close slow", "close base"]
    assert '"status": "paused"' in (workspace / "state.json").read_text()


_SIGNALLED = """
import os, signal, sys, time
from satchel import Resource, Run, agent

def note(text):
    with open("calls.txt", "a") as file:
        print(text, file=file)

class Base:
    def __enter__(self): note("open base")
    def __exit__(self, *error): note("close base")

class Slow:
    def __enter__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        note("open slow")
    def __exit__(self, *error): note("close slow")

class Hangs:
    def __enter__(self): note("open hangs")
    def __exit__(self, *error):
        note("close hangs")
        time.sleep(10_000)

@agent(resources=[Resource("base", Base, tier="process"), Resource("it", SLOW if False else CHOSEN, timeout=2)])
async def main(run: Run):
    note("agent")
"""


def play(workspace: Path, chosen: str) -> tuple[int, list[str]]:
    (workspace / "agent.py").write_text(_SIGNALLED.replace("SLOW if False else CHOSEN", chosen))
    command = [sys.executable, "-m", "satchel", "run", ".", "--quiet"]
    done = warm.run(command, cwd=workspace, timeout=PATIENCE, check=False, capture_output=True)
    return done.returncode, (workspace / "calls.txt").read_text().splitlines()


def test_a_signal_while_opening_leaves_nothing_open(workspace: Path) -> None:
    code, noted = play(workspace, "Slow")
    assert (code, noted) == (3, ["open base", "open slow", "close slow", "close base"])


def test_a_hanging_thread_does_not_keep_the_process(workspace: Path) -> None:
    code, noted = play(workspace, "Hangs")
    assert (code, noted) == (0, ["open base", "open hangs", "agent", "close hangs", "close base"])


def test_one_that_is_entered_lives_till_the_run_ends(workspace: Path, calls: list[str]) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        opened = await run.resources.enter(lambda: Plain(calls, "late"), name="late", tier="infrastructure")
        assert run.resources["late"] is opened
        calls.append(item.text)

    @agent(resources=[plain(calls, "early")])
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a", "b"])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"
    assert calls == ["open early", "open late", "a", "b", "close early", "close late"]


def test_a_name_that_is_taken_is_refused_and_what_was_given_is_not_entered(workspace: Path, calls: list[str]) -> None:
    @contextmanager
    def manager() -> Iterator[None]:
        calls.append("entered")
        yield

    @agent(resources=[plain(calls, "db")])
    async def main(run: Run[Any]) -> None:
        with pytest.raises(UsageError, match="a resource 'db' already"):
            await run.resources.enter(manager(), name="db")
        with pytest.raises(UsageError, match="no resource 'cache'"):
            run.resources["cache"]
        assert "cache" not in run.resources

    assert run(workspace, main).status == "completed"
    assert calls == ["open db", "close db"]


def test_one_that_can_not_be_entered_pauses_the_run_in_the_middle_of_an_item(workspace: Path, calls: list[str]) -> None:
    @step
    async def before() -> None:
        calls.append("before")

    def connect() -> Plain:
        if calls == ["before"]:
            raise ConnectionRefusedError("nobody listens")
        return Plain(calls, "db")

    async def work(run: Run[Any], item: Item) -> None:
        await before()
        await run.resources.enter(connect, name="db")
        calls.append("worked")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    calls.append("resumed")
    assert run(workspace, main, wake=True).status == "completed"
    assert calls == ["before", "resumed", "open db", "worked", "close db"]


def test_it_can_not_be_entered_in_a_step(workspace: Path, calls: list[str]) -> None:
    @step
    async def connect(run: Run[Any]) -> None:
        await run.resources.enter(lambda: Plain(calls, "db"), name="db")

    @agent
    async def main(run: Run[Any]) -> None:
        await connect()

    outcome = run(workspace, main)
    assert outcome.status == "failed" and "inside <step connect>" in str(outcome.error)
    assert calls == []


def test_a_sub_agent_has_those_of_the_run_and_only_those(workspace: Path, calls: list[str]) -> None:
    @agent(resources=[plain(calls, "db")])
    async def child(run: Run[Any]) -> str:
        return str(run.resources["db"].name)

    @agent(resources=[plain(calls, "db")])
    async def main(run: Run[Any]) -> Any:
        return await run.spawn(child, "child")

    @agent
    async def without(run: Run[Any]) -> Any:
        return await run.spawn(child, "other")

    assert run(workspace, main).result == "db"
    assert calls == ["open db", "close db"]
    (workspace / "other").mkdir()
    (workspace / "other/workspace.yaml").write_text("format: 1\nrun_id: test-2\nagent: agent.py:main\n")
    outcome = run(workspace / "other", without)
    assert outcome.status == "failed" and "needs the resource 'db'" in str(outcome.error)


def test_it_is_left_in_the_task_and_thread_it_was_entered_in(workspace: Path) -> None:
    where: list[object] = []

    @contextmanager
    def in_thread() -> Iterator[None]:
        where.append(threading.get_ident())
        yield
        where.append(threading.get_ident())

    @asynccontextmanager
    async def in_task() -> AsyncIterator[None]:
        where.append(asyncio.current_task())
        yield
        where.append(asyncio.current_task())

    assert run(workspace, agent_of(Resource("a", in_thread), Resource("b", in_task))).status == "completed"
    thread, task, same_task, same_thread = where
    assert (thread, task) == (same_thread, same_task) and reasons(workspace) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: Resource("", Plain),
        lambda: Resource("a", "not a function"),  # type: ignore[arg-type]
        lambda: Resource("a", Plain, tier="database"),  # type: ignore[arg-type]
        lambda: Resource("a", Plain, timeout=0),
        lambda: agent_of(Resource("a", Plain), Resource("a", Plain)),
        lambda: agent_of("db"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_means_nothing_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
