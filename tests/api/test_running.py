"""Which calls run now, as `status` shows it while they run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import warm
from cli.conftest import Cli, Make
from servers import Server
from waits import PATIENCE

import satchel
from satchel import Retry, Run, agent, effect, step
from satchel.runtime.api import Handle, Latest, RunningCall, RunStatus
from satchel.runtime.engine import session
from satchel.runtime.live import pending_calls as registry
from satchel.workspace.store.s3 import Requests
from satchel.workspace.views import projector, running_file


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LONG", 0.02)
    monkeypatch.setattr(registry, "LONG_REMOTELY", 0.02)
    # The 5% rule would make each file wait for 20 times as long as the one before it took, on a machine that is busy.
    monkeypatch.setattr(projector, "SHARE", 0)


async def shown(handle: Handle, holds: Callable[[list[RunningCall]], object]) -> RunStatus:
    """The status, once it shows such calls."""
    deadline = time.monotonic() + PATIENCE
    while True:
        status = await asyncio.to_thread(handle.status)
        if holds(status.running):
            return status
        assert time.monotonic() < deadline and status.state != "failed", status
        await asyncio.sleep(0.01)


def calls(found: list[RunningCall]) -> list[str]:
    return sorted(f"{each.step}{each.call}" for each in found)


def play(handle: Handle, main: Any, look: Callable[[], Any]) -> str:
    """Run the agent, and look at it meanwhile."""

    async def test() -> str:
        run = asyncio.create_task(handle.run_async(main))
        try:
            await look()
        except BaseException:
            run.cancel()
            raise
        return (await run).status

    return asyncio.run(test())


def test_a_step_that_runs_is_not_shown(make: Make, cli: Cli) -> None:
    handle, seen = satchel.open(make()), satchel.open(make(name="x").parent / "demo")
    go, second = asyncio.Event(), asyncio.Event()

    @step
    async def summarise(path: str, words: int = 40) -> str:
        await go.wait()
        return path

    @step
    async def check() -> None:
        await second.wait()

    async def work(run: Run[Any], item: Any) -> None:
        await summarise("a.txt")
        await check()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("Demo", ["read it"])
        await run.todo.each(work)

    async def look() -> None:
        status = await shown(seen, len)
        (call,) = status.running
        assert (call.step, call.call, call.scope, call.agent) == ("summarise", '("path":"a.txt","words":40)', "1", "")
        assert 0 < call.seconds < PATIENCE and call.words.endswith(" s, item ^1")
        said = await asyncio.to_thread(cli, "status", seen.url)
        assert 'running   summarise("path":"a.txt","words":40) for 0.' in said.output and "item ^1" in said.output
        (told,) = json.loads((await asyncio.to_thread(cli, "status", seen.url, "--json")).output)["running"]
        assert told.keys() == {"agent", "scope", "step", "call", "since", "seconds"} and told["step"] == "summarise"
        assert (await asyncio.to_thread(seen.check)).ok
        go.set()
        assert calls((await shown(seen, lambda found: calls(found) != calls([call]))).running) in ([], ["check()"])
        await shown(seen, lambda found: calls(found) == ["check()"])
        second.set()

    assert play(handle, main, look) == "completed"
    assert seen.status().running == [] and not (Path(seen.url) / running_file.PATH).exists()


@pytest.mark.parametrize("left", [b"", b'{"format": 1, "run_id": "demo-1a2b", "ep', b"\0" * 300])
def test_what_a_power_failure_leaves_of_the_file_is_a_fault_for_ever(make: Make, cli: Cli, left: bytes) -> None:
    """It is renamed without a sync, and removed without one."""
    folder = make()
    handle, path = satchel.open(folder), folder / running_file.PATH
    assert handle.run().status == "completed"
    for clear in (handle.recover, handle.prune, partial(handle.history.rewind, to="^1"), handle.resume):
        path.write_bytes(left)
        assert cli("check", str(folder)).exit_code == 0 and handle.check().ok
        clear()
        assert not path.exists(), clear


def test_a_step_in_a_thread_two_at_once_and_an_effect_are_not_shown(make: Make) -> None:
    handle, seen = satchel.open(make()), satchel.open(make(name="x").parent / "demo")
    go, stay = threading.Event(), threading.Event()

    @step
    def crunch(number: int) -> int:
        assert (go if number == 1 else stay).wait(PATIENCE)
        return number

    @effect
    async def send(to: str) -> None:
        await asyncio.to_thread(stay.wait, PATIENCE)

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(crunch(1), crunch(2), send("ada"))

    async def look() -> None:
        found = (await shown(seen, lambda found: len(found) == 3)).running
        assert calls(found) == ['crunch("number":1)', 'crunch("number":2)', 'send("to":"ada")']
        assert {each.place for each in found} == {""}
        written = (Path(seen.url) / running_file.PATH).read_bytes()
        go.set()
        await shown(seen, lambda found: calls(found) == ['crunch("number":2)', 'send("to":"ada")'])
        assert (Path(seen.url) / running_file.PATH).read_bytes() == written, "the journal tells that a call has ended"
        stay.set()

    try:
        assert play(handle, main, look) == "completed"
    finally:
        go.set()
        stay.set()


def test_a_step_of_a_sub_agent_is_not_shown(make: Make) -> None:
    handle, seen = satchel.open(make()), satchel.open(make(name="x").parent / "demo")
    go = asyncio.Event()

    @step
    async def look_up(word: str) -> str:
        await go.wait()
        return word

    @agent
    async def helper(run: Run[Any]) -> None:
        await run.scope("search", look_up, "tea")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.spawn(helper, "helper")

    async def look() -> None:
        (call,) = (await shown(seen, len)).running
        assert (call.agent, call.step) == ("helper", "look_up")
        assert call.words.endswith(" s, scope search, agent helper")
        go.set()
        await shown(seen, lambda found: not found)

    assert play(handle, main, look) == "completed"


def test_a_secret_among_the_arguments_is_shown(make: Make) -> None:
    folder = make(extra="redact:\n  patterns: ['tok-[0-9a-f]{22}']\n")
    seen, go, secret = satchel.open(folder), asyncio.Event(), "tok-" + "0123456789a" * 2

    @step
    async def ask(question: str) -> None:
        await go.wait()

    @agent
    async def main(run: Run[Any]) -> None:
        await ask(f"{'x' * 30}{secret}")

    async def look() -> None:
        (call,) = (await shown(seen, len)).running
        assert "[redacted" in call.call and secret[:9] not in call.call
        assert secret[:9].encode() not in (folder / running_file.PATH).read_bytes()
        go.set()

    assert play(satchel.open(folder), main, look) == "completed"


def test_a_call_that_waits_to_be_tried_again_is_said_to_run(make: Make) -> None:
    handle, seen = satchel.open(make()), satchel.open(make(name="x").parent / "demo")
    fail, tried = asyncio.Event(), 0

    @step(retry=Retry(attempts=2, first=3600.0, longest=7200.0))
    async def ask() -> None:
        nonlocal tried
        tried += 1
        await fail.wait()
        raise TimeoutError if tried == 1 else ValueError

    @agent
    async def main(run: Run[Any]) -> None:
        await ask()

    async def look() -> None:
        await shown(seen, len)
        fail.set()
        status = await shown(seen, lambda found: not found)
        assert [each.step for each in status.retries] == ["ask"]
        seen.pause(reason="enough")

    assert play(handle, main, look) == "paused"


def test_a_call_that_has_failed_for_good_is_said_to_run(make: Make) -> None:
    folder, fail, go = make(), asyncio.Event(), asyncio.Event()

    @step
    async def ask() -> None:
        await fail.wait()
        raise OSError("no")

    @agent
    async def main(run: Run[Any]) -> None:
        with pytest.raises(OSError, match="no"):
            await ask()
        await go.wait()

    async def look() -> None:
        seen = satchel.open(folder)
        await shown(seen, len)
        fail.set()
        await shown(seen, lambda found: not found)
        go.set()

    assert play(satchel.open(folder), main, look) == "completed"


def test_a_call_that_has_ended_its_item_is_said_to_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_WAITS", (3600.0,))
    folder, fail = make(), asyncio.Event()

    @step
    async def ask() -> None:
        await fail.wait()
        raise OSError("no")

    async def work(run: Run[Any], item: Any) -> None:
        await ask()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("Demo", ["read it"])
        await run.todo.each(work)

    async def look() -> None:
        seen = satchel.open(folder)
        await shown(seen, len)
        fail.set()
        await shown(seen, lambda found: not found)
        await asyncio.to_thread(seen.pause)

    assert play(satchel.open(folder), main, look) == "paused"


def test_quick_steps_write_a_file_or_set_a_timer_each(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LONG", 3600.0)
    folder, timers = make(), 0
    real = registry.Running._look_later

    def count(calls: registry.Running) -> None:
        nonlocal timers
        timers += 1
        real(calls)

    monkeypatch.setattr(registry.Running, "_look_later", count)

    @step
    async def quick(number: int) -> int:
        return number

    @agent
    async def main(run: Run[Any]) -> None:
        for number in range(50):
            await quick(number)
        assert not (folder / running_file.PATH).exists()

    assert satchel.open(folder).run(main).status == "completed"
    assert timers == 1


STUCK = """
import time
from satchel import agent, step

@step
def wait() -> None:
    time.sleep(600)

@agent
async def main(run):
    await wait()
"""


def test_what_a_killed_process_did_is_said_to_run(make: Make) -> None:
    folder = make(STUCK)
    process = warm.Popen([sys.executable, "-m", "satchel", "run", "--in-process", str(folder)])
    seen = satchel.open(folder)
    try:
        assert calls(asyncio.run(shown(seen, len)).running) == ["wait()"]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    status = seen.status()
    assert status.state == "interrupted" and status.running == []
    assert (folder / running_file.PATH).exists()

    @agent
    async def main(run: Run[Any]) -> None:
        assert satchel.open(folder).status().running == [], "of another process"

    assert seen.run(main).status == "completed" and not (folder / running_file.PATH).exists()


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 2}', b"\xff", b'{"format":1,"calls":[{}]}'], ids=str)
def test_a_damaged_file_says_something(make: Make, data: bytes) -> None:
    folder, go = make(), asyncio.Event()

    @step
    async def wait() -> None:
        await go.wait()

    @agent
    async def main(run: Run[Any]) -> None:
        await wait()

    async def look() -> None:
        seen = satchel.open(folder)
        await shown(seen, len)
        (folder / running_file.PATH).write_bytes(data)
        status = seen.status()
        assert status.state == "running" and status.running == [] and status.problem is None
        go.set()

    assert play(satchel.open(folder), main, look) == "completed"
    assert satchel.open(folder).check().ok


def test_a_screen_that_stays_open_does_not_see_that_a_call_runs(make: Make) -> None:
    folder, go = make(), asyncio.Event()

    @step
    async def wait() -> None:
        await go.wait()

    @agent
    async def main(run: Run[Any]) -> None:
        await wait()

    async def look() -> None:
        latest, deadline = Latest(satchel.open(folder)), time.monotonic() + PATIENCE
        for wanted in (["wait()"], []):
            while calls((await asyncio.to_thread(latest.look)).status.running) != wanted:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            go.set()

    assert play(satchel.open(folder), main, look) == "completed"


def test_a_call_in_a_bucket_is_not_shown_or_costs_more_than_a_request(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{seaweedfs.place()}/a"
    bucket, _, key = url.removeprefix("s3://").partition("/")
    seaweedfs.client.put_object(
        Bucket=bucket, Key=f"{key}/workspace.yaml", Body=b"format: 1\nrun_id: a-1\nagent: agent.py:main\n"
    )
    asked: list[str] = []
    answer = Requests._answer

    async def counted(requests: Requests, method: str, arguments: Any, seconds: float) -> Any:
        asked.append(f"{method} {arguments.get('Key', '')}")
        return await answer(requests, method, arguments, seconds)

    monkeypatch.setattr(Requests, "_answer", counted)
    go = asyncio.Event()

    @step
    async def quick(number: int) -> int:
        return number

    @step
    async def wait() -> None:
        await go.wait()

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(*map(quick, range(20)))
        await wait()

    def about() -> list[str]:
        return [each for each in asked if each.endswith(running_file.PATH)]

    async def look() -> None:
        await shown(satchel.open(url), lambda found: calls(found) == ["wait()"])
        asked.clear()
        assert calls((await asyncio.to_thread(satchel.open(url).status)).running) == ["wait()"]
        assert [each.split()[0] for each in about()] == ["get_object"]
        asked.clear()
        go.set()

    assert play(satchel.open(url), main, look) == "completed"
    assert not [each for each in about() if each.startswith(("put_object", "get_object"))], about()
    asked.clear()
    assert satchel.open(url).status().running == [] and not about(), "of a stopped run nothing is read"
    assert satchel.open(url).check().ok
