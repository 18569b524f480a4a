"""Patience: retries, Retry-After, other models, a durable sleep, and an item that fails again and again."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import warm
from click.testing import CliRunner
from properties import seed
from waits import HANGS, PATIENCE

from satchel import Item, Retry, Run, agent, effect, run, step
from satchel.runtime.agent.attempts import A_DAY, retry_after
from satchel.runtime.cli.group import group
from satchel.runtime.engine import session
from satchel.runtime.execution import own_steps
from satchel.workspace.base.errors import AgentError, UsageError

QUICK = Retry(attempts=4, first=0.001, longest=0.02)


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("limiting", Path(__file__).with_name("limiting.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["limiting"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


limiting = _module()
DROP, limited = limiting.DROP, limiting.limited


@pytest.fixture
def server() -> Iterator[Any]:
    with limiting.serving() as limits:
        yield limits


def state(workspace: Path) -> dict[str, Any]:
    return dict(json.loads((workspace / "state.json").read_text()))


def records(workspace: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(workspace.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] == kind]


def asking(server: Any, retry: Retry | None, **options: Any) -> Any:
    @step(retry=retry, **options)
    def ask(name: str, model: str = "first") -> str:
        return str(limiting.ask(server.address, name, model))

    return ask


def one_call(call: Any) -> Any:
    @agent
    async def main(run: Run[Any]) -> Any:
        return await call()

    return main


# Retries


@pytest.mark.parametrize("faults", [[DROP], [(503, {})], [limited(0)], [DROP, (502, {}), limited("0.01")]])
def test_what_passes_is_waited_for(workspace: Path, server: Any, faults: Any) -> None:
    ask = asking(server, QUICK)
    server.faults["page"].extend(faults)
    assert run(workspace, one_call(lambda: ask("page"))).result == "page by first"
    assert server.asked["page"] == len(faults) + 1
    assert len(records(workspace, "step.failed")) == len(faults)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}, {"Retry-After": "3600"}, {"retry-after-ms": "900000"}])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_status_that_means_no_is_not_asked_again(workspace: Path, server: Any, status: int, headers: Any) -> None:
    ask = asking(server, QUICK)
    server.faults["page"].extend([(status, headers)] * 9)
    assert run(workspace, one_call(lambda: ask("page"))).status == "failed"
    assert server.asked["page"] == 1


def test_a_model_is_waited_for_longer_than_a_tool() -> None:
    model, tool = Retry.model(), Retry.tool()
    assert model.attempts > tool.attempts and model.longest > tool.longest


def test_a_server_that_asks_for_time_gets_it(workspace: Path, server: Any) -> None:
    ask = asking(server, Retry(attempts=2, first=0.001, longest=5.0))
    server.faults["page"].append(limited(1))
    began = time.monotonic()
    assert run(workspace, one_call(lambda: ask("page"))).result == "page by first"
    assert time.monotonic() - began >= 1.0


class _Response:
    def __init__(self, headers: Any):
        self.headers = headers


class _Error(Exception):
    def __init__(self, headers: Any):
        self.response = _Response(headers)


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    assert retry_after(_Error({"retry-after": "7"})) == 7
    assert 3590 < retry_after(_Error({"Retry-After": format_datetime(in_an_hour, usegmt=True)})) <= 3600
    for nonsense in ({}, None, {"retry-after": "soon"}, {"retry-after": "-3"}, {"retry-after": "nan"}):
        assert retry_after(_Error(nonsense)) == 0, nonsense
    assert retry_after(ValueError()) == 0


def test_retry_after_in_milliseconds_counts_first() -> None:
    assert retry_after(_Error({"retry-after-ms": "1500", "retry-after": "2"})) == 1.5
    assert retry_after(_Error({"Retry-After-MS": "250"})) == 0.25
    assert retry_after(_Error({"retry-after-ms": "soon", "Retry-After": "7"})) == 7
    assert retry_after(_Error({"retry-after-ms": "1e20"})) == A_DAY


@pytest.mark.parametrize("asked", ["inf", "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_server_makes_a_run_sleep_for_ever(workspace: Path, asked: str) -> None:
    assert retry_after(_Error({"Retry-After": asked})) == A_DAY

    @step(retry=QUICK)
    async def ask() -> None:
        raise limiting.Refused(429, {"Retry-After": asked})

    outcome = run(workspace, one_call(ask))
    assert outcome.status == "sleeping", outcome.error
    assert timedelta(hours=23) < datetime.fromisoformat(outcome.until) - datetime.now(UTC) <= timedelta(days=1)
    assert "in more than a day; it is called again after one" in (workspace / "state.json").read_text()


def test_of_ten_calls_at_once_only_the_refused_are_made_again(workspace: Path, server: Any) -> None:
    ask = asking(server, QUICK)
    chance = random.Random(seed())
    names = [f"page{number}" for number in range(10)]
    for name in names:
        server.faults[name].extend(chance.choices([DROP, (503, {}), limited(0.01)], k=chance.randint(0, 3)))
    expected = {name: len(server.faults[name]) + 1 for name in names}

    async def all_at_once() -> Any:
        return await asyncio.gather(*(ask(name) for name in names))

    outcome = run(workspace, one_call(all_at_once))
    assert outcome.result == [f"{name} by first" for name in names], outcome.error
    assert dict(server.asked) == expected
    assert all(server.answered[name] == 1 for name in names)


_TEN = """
import asyncio, os, sys
sys.path.insert(0, os.environ["HELPERS"])
import limiting
from satchel import Retry, agent, step

ADDRESS = ("127.0.0.1", int(os.environ["PORT"]))

@step(retry=Retry(attempts=900, first=0.01, longest=0.2))
def ask(name: str) -> str:
    return limiting.ask(ADDRESS, name, os.environ["START"])

@agent
async def main(run):
    return await asyncio.gather(*(ask(f"page{n}") for n in range(10)))
"""


def test_what_was_paid_before_a_kill_is_not_paid_again(workspace: Path, server: Any) -> None:
    """Ten calls at once; some are refused, and the process is killed when the record holds a part of them."""
    (workspace / "agent.py").write_text(_TEN)
    chance = random.Random(seed())
    names = [f"page{number}" for number in range(10)]
    stuck = set(chance.sample(names, 4))
    for name in names:
        server.faults[name].extend(chance.choices([DROP, (503, {}), limited(0.01)], k=chance.randint(0, 2)))
    for name in stuck:  # these are never answered before the kill
        server.faults[name].extend([(503, {})] * 1000)
        server.faults[f"{name}@second"].clear()  # a request of the killed process may still be on its way
    environment = {
        **os.environ,
        "HELPERS": str(Path(__file__).parent),
        "PORT": str(server.address[1]),
        "START": "first",
    }
    script = "import json, sys, satchel; o = satchel.run(sys.argv[1]); print(json.dumps([o.status, o.result]))"
    command = [sys.executable, "-c", script, str(workspace)]
    with warm.Popen(command, env=environment) as process:
        until = time.monotonic() + PATIENCE
        while len(_done(workspace)) < 6:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    before = dict(server.asked)
    environment["START"] = "second"
    done = warm.run(command, env=environment, timeout=60, check=True, capture_output=True, text=True)
    starts = ["second" if name in stuck else "first" for name in names]
    assert json.loads(done.stdout) == [
        "completed",
        [f"{name} by {start}" for name, start in zip(names, starts, strict=True)],
    ]
    for name in names:
        assert server.answered[name] == 1, name
        assert name in stuck or server.asked[name] == before[name], name


def _done(workspace: Path) -> list[str]:
    texts = [path.read_text() for path in workspace.glob("journal/*.jsonl")]
    return [line for text in texts for line in text.splitlines() if '"type":"step.completed"' in line]


# Other models


def test_the_next_model_is_asked_when_the_first_is_exhausted_and_is_on_record(workspace: Path, server: Any) -> None:
    ask = asking(server, Retry(attempts=2, first=0.001, longest=0.01), fallback=["second", "third"])
    server.faults["page@first"].extend([(503, {})] * 9)
    server.faults["page@second"].extend([DROP] * 9)
    assert run(workspace, one_call(lambda: ask("page"))).result == "page by third"
    assert server.asked["page"] == 5
    (record,) = records(workspace, "step.completed")
    assert record["model"] == "third"
    assert "[by third]" in satchel("log", str(workspace))[1]
    assert run(workspace, one_call(lambda: ask("page")), wake=True).status == "completed"
    assert server.asked["page"] == 5


def test_the_first_model_that_answers_leaves_no_name(workspace: Path, server: Any) -> None:
    ask = asking(server, QUICK, fallback=["second"])
    run(workspace, one_call(lambda: ask("page")))
    assert "model" not in records(workspace, "step.completed")[0]


def test_a_model_that_asks_for_much_time_is_passed_over_at_once(workspace: Path, server: Any) -> None:
    ask = asking(server, QUICK, fallback=["second"])
    server.faults["page@first"].append(limited(3600))
    assert run(workspace, one_call(lambda: ask("page"))).result == "page by second"
    assert server.asked["page"] == 2


def test_a_mistake_is_not_tried_with_another_model(workspace: Path, calls: list[str]) -> None:
    @step(retry=QUICK, fallback=["second"])
    def ask(model: str = "first") -> None:
        calls.append(model)
        raise TypeError("wrong")

    assert run(workspace, one_call(ask)).status == "failed"
    assert calls == ["first"]


def test_fallback_models_need_a_parameter() -> None:
    with pytest.raises(UsageError, match="`model`"):

        @step(fallback=["second"])
        def ask() -> None: ...


# Sleep


def satchel(*words: str) -> tuple[int, str]:
    in_here = ["--in-process"] if words[0] in ("run", "resume") else []
    done = CliRunner().invoke(group, [words[0], *in_here, *words[1:]])
    return done.exit_code, done.output


def test_when_all_models_ask_for_much_time_the_run_sleeps_for_the_shortest(workspace: Path, server: Any) -> None:
    ask = asking(server, QUICK, fallback=["second"])
    server.faults["page@first"].append(limited(3600))
    server.faults["page@second"].append(limited(1800))
    outcome = run(workspace, one_call(lambda: ask("page")))
    left = datetime.fromisoformat(outcome.until) - datetime.now(UTC)
    assert outcome.status == "sleeping" and timedelta(minutes=29) < left <= timedelta(minutes=30)
    assert state(workspace)["status"] == "sleeping" and state(workspace)["until"] == outcome.until
    (closed,) = records(workspace, "closed")
    assert (closed["status"], closed["until"]) == ("sleeping", outcome.until)
    assert "try again later" in closed["reason"]
    assert run(workspace, one_call(lambda: ask("page")), wake=True).result == "page by first"


@pytest.mark.parametrize("hours", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_of_several_that_must_wait_the_first_to_be_due_wakes_the_run(workspace: Path, hours: tuple[int, ...]) -> None:
    turns = [asyncio.Event() for _ in hours]
    all_begun = asyncio.Barrier(len(hours))

    @step(retry=QUICK)
    async def ask(number: int) -> None:
        turn = hours.index(number)
        await all_begun.wait()
        if turn:
            await turns[turn - 1].wait()
        asyncio.get_running_loop().call_later(0.01, turns[turn].set)
        raise limiting.Refused(429, {"Retry-After": str(3600 * number)})

    async def all_at_once() -> None:
        await asyncio.gather(*map(ask, hours))

    outcome = run(workspace, one_call(all_at_once))
    assert outcome.status == "sleeping"
    assert datetime.fromisoformat(outcome.until) - datetime.now(UTC) <= timedelta(hours=1)


def test_calls_beside_one_that_sleeps_are_finished_and_not_paid_twice(workspace: Path, server: Any) -> None:
    ask = asking(server, QUICK)
    server.faults["page3"].append(limited(3600))
    names = [f"page{number}" for number in range(10)]

    async def all_at_once() -> Any:
        return await asyncio.gather(*(ask(name) for name in names))

    assert run(workspace, one_call(all_at_once)).status == "sleeping"
    assert run(workspace, one_call(all_at_once), wake=True).result == [f"{name} by first" for name in names]
    assert all(server.answered[name] == 1 for name in names)
    assert server.asked == {**dict.fromkeys(names, 1), "page3": 2}


def test_an_effect_that_was_refused_sleeps_and_is_done_once(workspace: Path, server: Any) -> None:
    @effect(retry=QUICK, idempotent=True)
    def send(*, key: str) -> str:
        return str(limiting.ask(server.address, "mail", key))

    server.faults["mail"].append(limited(3600))
    assert run(workspace, one_call(send)).status == "sleeping"
    assert run(workspace, one_call(send), wake=True).status == "completed"
    assert server.answered["mail"] == 1


def test_a_run_that_sleeps_is_not_opened_before_its_time(workspace: Path, server: Any, calls: list[str]) -> None:
    @agent
    async def main(run: Run[Any]) -> str:
        calls.append("entered")
        await run.sleep(3600)
        return "awake"

    first = run(workspace, main)
    before = sorted((path, path.stat().st_mtime_ns) for path in workspace.rglob("*"))
    again = run(workspace, main)
    assert (again.status, again.until) == ("sleeping", first.until)
    assert calls == ["entered"]
    assert sorted((path, path.stat().st_mtime_ns) for path in workspace.rglob("*")) == before
    early = run(workspace, main, wake=True)
    assert (early.status, early.until) == ("sleeping", first.until), "its time is not over, so it sleeps on"
    assert calls == ["entered", "entered"]


_SLEEPER = """
from satchel import agent

@agent
async def main(run):
    if run.settings.get("until"):
        import datetime
        await run.sleep(datetime.datetime.fromisoformat(run.settings["until"]))
    return "awake"
"""


def test_the_command_line_tells_until_when_a_run_sleeps(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_SLEEPER)
    until = datetime.now(UTC) + timedelta(hours=2)
    definition = (workspace / "workspace.yaml").read_text()
    (workspace / "workspace.yaml").write_text(f"{definition}settings:\n  until: '{until.isoformat()}'\n")
    code, said = satchel("run", str(workspace))
    assert code == 5 and f"sleeping until {until:%Y-%m-%d %H:%M:%S} UTC" in said, said
    opened = len(records(workspace, "opened"))
    code, said = satchel("run", str(workspace))
    assert code == 5 and f"sleeping until {until:%Y-%m-%d %H:%M:%S} UTC" in said and "satchel resume" in said, said
    assert "completed" not in said
    code, said = satchel("run", "--json", str(workspace))
    assert code == 5 and json.loads(said.partition("next:")[0])["status"] == "sleeping"
    assert len(records(workspace, "opened")) == opened
    code, said = satchel("status", str(workspace))
    assert code == 0 and f"sleeping until {until:%Y-%m-%d %H:%M:%S} UTC" in " ".join(said.split()), said
    code, said = satchel("resume", str(workspace))
    assert code == 5, said
    assert len(records(workspace, "opened")) == opened + 1


def test_a_sleep_is_over_when_its_time_is_over_and_not_begun_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is needed for it: a second later another one goes on. Two equal waits are two waits."""
    monkeypatch.setattr(own_steps, "_IN_PROCESS", 0.0)

    @agent
    async def main(run: Run[Any]) -> str:
        await run.sleep(0.5)
        await run.sleep(0.5)
        return "awake"

    statuses, began = [], time.monotonic()
    while not statuses or statuses[-1] == "sleeping":
        outcome = run(workspace, main)
        statuses.append(outcome.status)
        if outcome.status == "sleeping":
            time.sleep(max(0.0, (datetime.fromisoformat(outcome.until) - datetime.now(UTC)).total_seconds()))
    assert statuses == ["sleeping", "sleeping", "completed"]
    assert time.monotonic() - began >= 1.0


def test_a_short_wait_stays_in_the_process(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> float:
        began = time.monotonic()
        await run.sleep(timedelta(seconds=0.2))
        await run.sleep(datetime.now(timezone(timedelta(hours=3))) + timedelta(seconds=0.1))
        await run.sleep(-5)
        return time.monotonic() - began

    outcome = run(workspace, main)
    assert outcome.status == "completed" and outcome.result >= 0.29


@pytest.mark.parametrize("duration", [datetime(2030, 1, 1), float("nan"), float("inf"), True, "1h", None])
def test_a_wait_that_means_nothing_is_refused(workspace: Path, duration: Any) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.sleep(duration)

    error = run(workspace, main).error
    assert isinstance(error, UsageError) and "run.sleep()" in str(error)


def test_a_sleep_begins_anew_after_a_kill(workspace: Path, crash: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is kept before the wait begins."""

    async def dies(seconds: float) -> None:
        raise crash

    @agent
    async def main(run: Run[Any]) -> None:
        await run.sleep(PATIENCE)

    with monkeypatch.context() as patched:
        patched.setattr(own_steps, "_IN_PROCESS", HANGS)
        patched.setattr(own_steps, "asyncio", SimpleNamespace(sleep=dies))
        with pytest.raises(crash):
            run(workspace, main)
    (progress,) = records(workspace, "step.progress")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.until) == ("sleeping", progress["value"]["until"])
    assert len(records(workspace, "step.progress")) == 1


# Stuck


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_WAITS", (0.0, 0.0))


def failing(calls: list[str], error: type[Exception], times: int) -> Any:
    @step
    async def read(name: str) -> str:
        calls.append(f"read {name}")
        return name

    async def work(run: Run[Any], item: Item) -> str:
        await read(item.text)
        run.state["half"] = True
        if len([call for call in calls if call == "fail"]) < times:
            calls.append("fail")
            raise error("not today")
        return "done"

    @agent
    async def main(run: Run[Any]) -> str:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)
        return "all"

    return main


@pytest.mark.usefixtures("no_waits")
def test_an_item_that_fails_is_tried_again_with_its_finished_steps(workspace: Path, calls: list[str]) -> None:
    outcome = run(workspace, failing(calls, OSError, 2))
    assert (outcome.status, outcome.result) == ("completed", "all")
    assert calls == ["read one", "fail", "fail"]


@pytest.mark.usefixtures("no_waits")
def test_an_item_that_has_failed_three_times_pauses_the_run(workspace: Path, calls: list[str]) -> None:
    outcome = run(workspace, failing(calls, OSError, 9))
    assert outcome.status == "paused" and calls == ["read one", "fail", "fail", "fail"]
    found = state(workspace)
    assert found["status"] == "paused" and found["data"] == {}
    assert found["reason"] == "stuck: 'one' has failed 3 times, the last time with OSError: not today"
    (closed,) = records(workspace, "closed")
    assert closed["error"]["kind"] == "OSError" and "in work" in closed["error"]["where"][-1]
    assert "stuck: 'one' has failed 3 times" in " ".join(satchel("status", str(workspace))[1].split())


_STUCK = """
from satchel import agent

async def work(run, item):
    raise OSError("not today")

@agent
async def main(run):
    await run.todo.each(work)
"""


def test_a_stuck_run_ends_with_the_code_of_a_paused_one(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_STUCK)
    (workspace / "todo.md").write_text("- [ ] one\n")
    code, said = satchel("run", str(workspace))
    assert code == 3 and "stuck: 'one' has failed 3 times" in " ".join(said.split()), said


def test_failures_are_counted_over_processes(workspace: Path, calls: list[str], crash: Any, monkeypatch: Any) -> None:
    """Two failures, each followed by a kill before the next attempt; the third is the last."""

    async def dies(delay: float) -> None:
        raise crash

    main = failing(calls, OSError, 9)
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(session.asyncio, "sleep", dies)
            with pytest.raises(crash):
                run(workspace, main)
    assert run(workspace, main).status == "paused"
    assert calls == ["read one", "fail", "fail", "fail"]
    assert len(records(workspace, "scope.failed")) == 3


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("error", [TypeError, KeyError, AssertionError, AttributeError, AgentError])
def test_a_mistake_fails_at_once_however_often(workspace: Path, calls: list[str], error: type[Exception]) -> None:
    for number in range(1, 5):
        outcome = run(workspace, failing(calls, error, 9))
        assert outcome.status == "failed" and isinstance(outcome.error, error)
        assert calls.count("fail") == number


@pytest.mark.usefixtures("no_waits")
def test_a_mistake_in_a_group_of_tasks_fails_at_once(workspace: Path, calls: list[str]) -> None:
    async def fail() -> None:
        calls.append("fail")
        raise TypeError

    async def work(run: Run[Any], item: Item) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status == "failed"
    assert calls == ["fail"]


@pytest.mark.usefixtures("no_waits")
def test_a_stuck_item_of_a_sub_agent_pauses_the_whole_run(workspace: Path, calls: list[str]) -> None:
    child = failing(calls, OSError, 9)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.spawn(child, "child")

    outcome = run(workspace, main)
    assert outcome.status == "paused" and calls.count("fail") == 3
    assert "stuck" in state(workspace)["reason"]
    calls[:] = ["fail"] * 9
    assert run(workspace, main).status == "paused" and len(calls) == 9
    assert run(workspace, main, wake=True).status == "completed"


def test_a_wait_until_a_time_that_is_counted_from_now_never_ends(
    workspace: Path, calls: list[str], crash: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another time at each start."""
    monkeypatch.setattr(own_steps, "_IN_PROCESS", 0.0)

    @agent
    async def main(run: Run[Any]) -> None:
        for turn in ("first", "second"):
            await run.sleep(datetime.now(UTC) + timedelta(seconds=0.3))
            calls.append(turn)
        if run.attempt == 3:
            raise crash

    def wait() -> None:
        outcome = run(workspace, main)
        assert outcome.status == "sleeping"
        end = datetime.fromisoformat(outcome.until)
        time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()))

    wait()
    wait()
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "completed"
    assert calls == ["first", *["first", "second"] * 2], "one that is over is not waited for again"


def test_a_wait_until_another_time_is_taken_for_the_one_before(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        hours = 1 if run.attempt == 1 else 2
        await run.sleep(datetime.now(UTC) + timedelta(hours=hours))

    first = datetime.fromisoformat(run(workspace, main).until)
    second = datetime.fromisoformat(run(workspace, main, wake=True).until)
    assert second - first > timedelta(minutes=59)
