"""What a person sees and does while a run is at work in a bucket, and what a kill leaves there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import warm
from servers import BUCKET, SECRET, Server
from waits import PATIENCE

import satchel
from satchel import Item, Run, agent, effect, run_async, step
from satchel.runtime.engine import context
from satchel.runtime.execution.running import Outcome
from satchel.runtime.live import folder_watch
from satchel.workspace.base.errors import Damaged, LeaseHeld
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Line
from satchel.workspace.journal.segment_log import SegmentObjects
from satchel.workspace.lifecycle import opening
from satchel.workspace.state import checkpoint, encoding
from satchel.workspace.store import open_store
from satchel.workspace.store.bucket import BucketStore
from satchel.workspace.store.s3 import Requests

DEFINITION = b"format: 1\nrun_id: trip-1\nagent: agent.py:main\n"

CHILD = """
import asyncio, sys
from satchel import Partial, agent, run, step

STORY = [f"word{number} " for number in range(int(sys.argv[2]))]

@step
async def tell(out: Partial) -> str:
    done = len(out.recovered or "")
    for word in STORY:
        if done >= len(word):
            done -= len(word)
            continue
        await out.write(word[done:])
        done = 0
        await asyncio.sleep(float(sys.argv[3]))
    return out.text

@agent
async def main(run):
    return await tell() == "".join(STORY)

found = run(sys.argv[1], main)
print("RESULT", found.result, found.recovered)
"""


class Place:
    """A workspace in a bucket, and a person with a tool that downloads and uploads."""

    def __init__(self, server: Server):
        self.server, self.url = server, server.place()
        self._prefix = self.url.removeprefix(f"s3://{BUCKET}/")
        self.upload("workspace.yaml", DEFINITION)

    def upload(self, path: str, data: bytes) -> None:
        self.server.client.put_object(Bucket=BUCKET, Key=f"{self._prefix}/{path}", Body=data)

    def download(self, path: str) -> bytes:
        data: bytes = self.server.client.get_object(Bucket=BUCKET, Key=f"{self._prefix}/{path}")["Body"].read()
        return data

    def go_home(self) -> None:
        """A person adds to the plan."""
        text, times = re.subn(rb"(\[x\] start.*)", rb"\1\n- [ ] home", self.download("todo.md"))
        assert times == 1, "the file shows an older moment"
        self.upload("todo.md", text)

    def names(self) -> list[str]:
        found = self.server.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self._prefix}/").get("Contents", [])
        return [each["Key"].removeprefix(f"{self._prefix}/") for each in found]

    async def run(self, agent: Any, **options: Any) -> Outcome:
        return await run_async(open_store(self.url, self.server.storage_options()), agent, **options)


@pytest.fixture
def unhurried(seaweedfs: Server) -> Place:
    return Place(seaweedfs)


@pytest.fixture
def place(unhurried: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where a run looks for changes so often that a test need not wait for it."""
    monkeypatch.setattr(folder_watch, "_REMOTE_RESCAN", 0.2)
    return unhurried


@step
async def add(one: int, other: int) -> int:
    return one + other


@pytest.mark.slow
def test_a_stream_killed_in_a_bucket_goes_on_without_gap_or_doubling(place: Place) -> None:
    environment = {**os.environ, **place.server.environment()}
    command = [sys.executable, "-c", CHILD, place.url, "300"]
    child = warm.Popen([*command, "1"], stdout=subprocess.PIPE, text=True, env=environment)

    def kept() -> int:
        (partial,) = [name for name in place.names() if name.startswith("partials/")] or [""]
        return len(place.download(partial).split(b"---\n", 2)[2]) if partial else 0

    while not kept():
        assert child.poll() is None, "it ended before any of it was in the bucket"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    known = kept()
    again = warm.run([*command, "0"], capture_output=True, text=True, env=environment, timeout=120, check=True)
    assert again.stdout.splitlines()[-1] == f"RESULT True {known}"
    assert not [name for name in place.names() if name.startswith("partials/")]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # a bucket has no event
            await asyncio.sleep(0.1)


@agent
async def traveller(run: Run[Any]) -> list[str]:
    """Goes on until there is an item called `home`."""
    if not run.todo.items:
        await run.plan("Trip", ["start"])

    async def work(run: Run[Any], item: Item) -> None:
        run.state.setdefault("been", []).append(item.text)

    while "home" not in run.state.get("been", []):
        await run.todo.each(work)
        await add(1, len(run.state["been"]))
        await asyncio.sleep(0.1)
    return run.state["been"]  # type: ignore[no-any-return]


def playing(play: Callable[[asyncio.Task[Outcome]], Awaitable[None]], running: Awaitable[Outcome]) -> Outcome:
    async def main() -> Outcome:
        task = asyncio.ensure_future(running)
        await play(task)
        return await asyncio.wait_for(task, PATIENCE)

    return asyncio.run(main())


@pytest.mark.slow
def test_an_upload_while_it_runs_is_not_noticed(place: Place) -> None:
    async def play(task: asyncio.Task[Outcome]) -> None:
        await until(lambda: "todo.md" in place.names() and b"[x] start" in place.download("todo.md"))
        place.go_home()
        await until(task.done)

    outcome = playing(play, place.run(traveller))
    assert outcome.status == "completed" and outcome.result == ["start", "home"], outcome
    assert any("todo.md" in text for text in outcome.noticed)


def test_a_pause_dropped_into_the_bucket_is_obeyed_and_taken_back(place: Place) -> None:
    async def play(task: asyncio.Task[Outcome]) -> None:
        await until(lambda: "state.json" in place.names())
        place.upload("pause.yaml", b"reason: a look\n")

    outcome = playing(play, place.run(traveller))
    assert outcome.status == "paused"
    pause = place.download("pause.yaml").decode()
    assert "status: paused" in pause and "reason: a look" in pause and "verified: true" in pause
    place.upload("pause.yaml", pause.replace("status: paused", "status: resume").encode())
    state = json.loads(place.download("state.json"))
    assert state["status"] == "paused"
    place.go_home()
    again = asyncio.run(place.run(traveller))
    assert again.status == "completed" and again.result == ["start", "home"]
    assert "pause.yaml" not in place.names()


@pytest.mark.slow
def test_an_upload_that_contradicts_what_the_run_wrote_is_never_lost(place: Place) -> None:
    """The run writes state.json again and again; what a person uploads in between is merged, or kept."""

    async def play(task: asyncio.Task[Outcome]) -> None:
        await until(lambda: "state.json" in place.names() and b'"been"' in place.download("state.json"))
        state = json.loads(place.download("state.json"))
        state["data"]["note"] = "from a person"
        place.upload("state.json", json.dumps(state).encode())
        await until(lambda: b"from a person" in place.download("state.json") or task.done())
        await until(lambda: b"[x] start" in place.download("todo.md"))
        place.go_home()

    outcome = playing(play, place.run(traveller))
    assert outcome.status == "completed"
    assert json.loads(place.download("state.json"))["data"]["note"] == "from a person"


@pytest.mark.slow
def test_answers_and_work_are_taken_from_the_bucket(place: Place) -> None:
    async def note(run: Run[Any], task: Any) -> None:
        run.state.setdefault("tasks", []).append(task.text.strip())

    @agent
    async def clerk(run: Run[Any]) -> list[str]:
        answer = await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
        async for task in run.inbox:
            await run.scope(task.id, note, run, task)
            await until(lambda: len(run.inbox) > 0 or len(run.state["tasks"]) == 2)
        return [answer.decision, *run.state["tasks"]]

    assert asyncio.run(place.run(clerk)).status == "waiting"
    form = place.download("approvals/a1.yaml").decode()
    place.upload("approvals/a1.yaml", re.sub("^decision:.*$", "decision: yes", form, flags=re.M).encode())
    place.upload("inbox/one.md", b"the first task\n")

    async def play(task: asyncio.Task[Outcome]) -> None:
        await until(lambda: b"the first task" in place.download("state.json") or task.done())
        place.upload("inbox/two.md", b"the second task\n")

    answered = playing(play, place.run(clerk))
    assert answered.status == "completed", answered.error
    assert answered.result == ["yes", "the first task", "the second task"]
    assert not {"inbox/one.md", "inbox/two.md"} & {*place.names()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests of stores of this process, by method."""
    counts: Counter[str] = Counter()
    once, fetch = Requests.once, Requests.fetch

    def counted(self: Requests, method: str, *args: Any, **kwargs: Any) -> Any:
        counts[method] += 1
        return once(self, method, *args, **kwargs)

    def fetched(self: Requests, *args: Any, **kwargs: Any) -> Any:
        counts["get_object"] += 1
        return fetch(self, *args, **kwargs)

    monkeypatch.setattr(Requests, "once", counted)
    monkeypatch.setattr(Requests, "fetch", fetched)
    return counts


HISTORY = """
import os, sys, signal
from satchel import agent, run, step

@step
async def add(one: int, other: int) -> int:
    return one + other

async def work(run, item):
    run.state["sum"] = await add(run.state.get("sum", 0), 1)
    if item.text == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Count", [str(number) for number in range(1000)])
    await run.todo.each(work)

run(sys.argv[1], main)
"""


@pytest.mark.parametrize("longer", [60, pytest.param(250, marks=pytest.mark.slow)])
def test_opening_costs_no_more_requests_after_a_longer_history(place: Place, asked: Counter[str], longer: int) -> None:
    environment = {**os.environ, **place.server.environment()}
    counts = []
    for last in (9, longer):
        command = [sys.executable, "-c", HISTORY, place.url, str(last)]
        assert warm.run(command, env=environment, timeout=300, check=False).returncode == -signal.SIGKILL
        asked.clear()
        entered: list[int] = []

        @agent
        async def main(run: Run[Any], entered: list[int] = entered) -> None:
            entered.append(asked.total() - asked["list_objects_v2"])
            await asyncio.get_running_loop().create_future()

        async def opening(main: Any = main, entered: list[int] = entered) -> None:
            task = asyncio.ensure_future(place.run(main))
            await until(lambda: entered or task.done())
            task.cancel()
            await asyncio.wait([task])

        asyncio.run(opening())
        counts += entered
    # One or two more than the 16 of a clean stop: groups that the killed process had not rolled up.
    assert len(counts) == 2 and max(counts) <= 18, counts


def stopping(place: Place) -> Any:
    """A step that would take long, in which somebody wants a pause."""

    @step
    async def stopped() -> None:
        place.upload("pause.yaml", b"reason: a look")
        await asyncio.sleep(60)

    return stopped


def test_an_item_of_one_step_costs_a_request_for_its_commit(
    place: Place, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the journal it was two. The readable files are apart: they are written as often as a twentieth of the time
    allows."""
    monkeypatch.setattr(context, "ALONE_AFTER", 1e9)  # else a busy machine lets one go alone
    groups: list[int] = []
    write = SegmentObjects.write

    def counted(self: SegmentObjects, lines: Sequence[Line], data: bytes) -> None:
        groups.append(lines[-1].seq)
        write(self, lines, data)

    monkeypatch.setattr(SegmentObjects, "write", counted)
    begun: list[int] = []

    @step
    async def read(text: str) -> str:
        return text.upper()

    async def work(run: Run[Any], item: Item) -> None:
        begun.append(len(groups))
        run.state[item.text] = await read(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, [str(number) for number in range(11)])
        await run.todo.each(work)

    assert asyncio.run(place.run(main)).status == "completed"
    assert begun[-1] - begun[0] == 10, groups


def test_going_on_after_a_pause_costs_little(place: Place, asked: Counter[str]) -> None:
    """Two listings, one of them short, a fence, a group and a heartbeat; no look at a file that nobody has touched.
    On a busy machine the records of an opening may go in two groups, as none waits for the next: one more to write
    here, or one more to read of the run before.
    This stop was by force, so the checkpoint from before it is fetched, too."""
    costs: list[Counter[str]] = []

    stopped = stopping(place)

    @agent
    async def main(run: Run[Any]) -> None:
        costs.append(Counter(asked))
        if len(costs) == 1:
            await stopped()

    assert asyncio.run(place.run(main, drain_timeout=0.0)).status == "paused"
    asked.clear()
    assert asyncio.run(place.run(main, wake=True)).status == "completed"
    *_, cost = costs
    assert cost["list_objects_v2"] == 2 and cost["get_object"] <= 6 and cost["put_object"] <= 4, cost
    seen = look(open_store(place.url, place.server.storage_options()))
    assert seen.moment.pause is None and "pause.yaml" not in place.names()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("mode", ["drain", "emergency"])
def test_a_slow_removal_of_the_last_pause_does_not_stop_the_run_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    stopped = stopping(place)

    @agent
    async def main(run: Run[Any]) -> None:
        if not removed:
            await stopped()
        await asyncio.sleep(0.6)  # attention looks at the files, and the file is still there

    once, removed = Requests.once, list[str]()

    def slow(self: Requests, method: str, what: str, path: str, **arguments: Any) -> Any:
        if method == "delete_object" and path == "pause.yaml":
            removed.append(path)
            time.sleep(0.4)
        return once(self, method, what, path, **arguments)

    assert asyncio.run(place.run(main, drain_timeout=0.0)).status == "paused"
    place.upload("pause.yaml", place.download("pause.yaml").replace(b"mode: drain", f"mode: {mode}".encode()))
    monkeypatch.setattr(Requests, "once", slow)
    removed.append("")
    assert asyncio.run(place.run(main, wake=True)).status == "completed"
    assert len(removed) > 1 and "pause.yaml" not in place.names()


def test_a_pause_asked_for_while_the_agent_blocks_the_loop_is_not_removed(place: Place) -> None:
    entered: list[int] = []

    stopped = stopping(place)

    @step
    async def add_up() -> int:
        return 1

    @agent
    async def main(run: Run[Any]) -> None:
        entered.append(run.attempt)
        if len(entered) == 1:
            await stopped()
        elif len(entered) == 2:
            give_up = time.monotonic() + PATIENCE
            while "pause.yaml" in place.names() and time.monotonic() < give_up:
                time.sleep(0.02)  # noqa: ASYNC251  # as an import blocks, or loading a model
            place.upload("pause.yaml", b"reason: once more")
            for _ in range(100):
                await asyncio.sleep(0.1)
                await add_up()

    assert asyncio.run(place.run(main, drain_timeout=0.0)).status == "paused"
    assert asyncio.run(place.run(main, wake=True)).status == "paused"
    assert b"reason: once more" in place.download("pause.yaml")
    assert asyncio.run(place.run(main, wake=True)).status == "completed"


@pytest.mark.slow
def test_who_was_frozen_while_another_took_the_run_says_so_and_blames_no_file(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads state.json as the new owner has left it, behind a fence that counts no more."""

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("sums", sums)

    async def sums() -> None:
        for number in range(3):
            await add(number, 1)

    def options() -> Any:
        return open_store(place.url, place.server.storage_options())

    look_at_edits, rivals = opening.notice, [1]

    def frozen(*arguments: Any, **more: Any) -> Any:
        if rivals and rivals.pop():
            assert satchel.run(options(), main, take_over=True).status == "completed"
        return look_at_edits(*arguments, **more)

    monkeypatch.setattr(opening, "notice", frozen)
    with pytest.raises(LeaseHeld, match="taken"), opening.opened(options(), "run", Report(), take_over=True):
        pass
    assert look(options()).moment.status == "completed"


def test_no_secret_is_in_any_object(place: Place) -> None:
    @agent
    async def main(run: Run[Any]) -> int:
        return await add(1, 2)

    assert asyncio.run(place.run(main)).status == "completed"
    for name in place.names():
        assert SECRET.encode() not in place.download(name), name


def test_an_upload_right_before_the_end_is_overlooked(place: Place) -> None:
    """The run lists the bucket every few seconds, and once more when it comes to its end."""

    @step
    def last() -> None:
        give_up = time.monotonic() + PATIENCE
        while b"[x] start" not in place.download("todo.md"):
            assert time.monotonic() < give_up
            time.sleep(0.02)
        place.go_home()

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        run.state[item.text] = True

    @agent
    async def main(run: Run[dict[str, Any]]) -> list[str]:
        await run.todo.each(work)
        await last()
        return list(run.state)

    place.upload("todo.md", b"- [ ] start\n")
    outcome = asyncio.run(place.run(main))
    assert (outcome.status, outcome.result) == ("completed", ["start", "home"])


def test_a_timeout_between_an_effect_and_its_record_leaves_a_doubt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that records it is under way when the agent's patience ends."""
    calls: list[str] = []
    once = Requests.once

    def slow(self: Requests, method: str, what: str, path: str, **arguments: Any) -> Any:
        if method == "put_object" and path.startswith("journal/") and calls == ["sent"]:
            time.sleep(0.4)
        return once(self, method, what, path, **arguments)

    monkeypatch.setattr(Requests, "once", slow)

    @effect
    async def send() -> str:
        calls.append("sent")
        return "receipt"

    @agent
    async def main(run: Run[Any]) -> str:
        try:
            async with asyncio.timeout(None if len(calls) > 1 else 0.2):
                return await send()
        except TimeoutError:
            calls.append("timeout")
            raise

    assert asyncio.run(place.run(main)).status == "failed"
    assert calls == ["sent", "timeout"]
    outcome = asyncio.run(place.run(main))
    assert (outcome.status, outcome.result, outcome.doubts) == ("completed", "receipt", [])
    assert calls == ["sent", "timeout"]


@pytest.fixture
def taken_apart(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small scopes have their results apart. The paths of the checkpoints that are fetched whole."""
    monkeypatch.setattr(encoding, "MANY", 20)
    monkeypatch.setattr(checkpoint, "_LARGE", 1)
    whole: list[str] = []
    get = BucketStore._get

    def counted(self: BucketStore, path: str, *arguments: Any, **more: Any) -> Any:
        whole.extend([path] if re.fullmatch(r"checkpoints/[^/]*\.json", path) and "Range" not in more else [])
        return get(self, path, *arguments, **more)

    monkeypatch.setattr(BucketStore, "_get", counted)
    return whole


def with_many_results(place: Place, entered: list[int], calls: list[int], whole: list[str]) -> Any:
    """An agent that pauses when its scope has 40 results, and completes when it is entered again."""

    @step
    async def number(value: int) -> int:
        calls.append(value)
        return value

    async def many(run: Run[Any]) -> int:
        found = sum(await asyncio.gather(*(number(value) for value in range(40))))
        if len(entered) == 1:
            await run.pause("a look")
        return found

    @agent
    async def main(run: Run[Any]) -> int:
        entered.append(len(whole))
        return await run.scope("many", many, run)

    return main


def test_results_of_an_open_scope_are_fetched_before_they_are_asked_for(place: Place, taken_apart: list[str]) -> None:
    entered, calls = list[int](), list[int]()
    main = with_many_results(place, entered, calls, taken_apart)
    assert asyncio.run(place.run(main)).status == "paused"
    taken_apart.clear()
    outcome = asyncio.run(place.run(main, wake=True))
    assert (outcome.status, outcome.result) == ("completed", 780), outcome.error
    assert entered == [0, 0] and len(taken_apart) == 1 and sorted(calls) == [*range(40)], "no call is repeated"


def test_the_journal_is_fetched_after_a_large_checkpoint(
    place: Place, taken_apart: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer about the checkpoint waits for the question about the journal."""
    entered, calls = list[int](), list[int]()
    main = with_many_results(place, entered, calls, taken_apart)
    assert asyncio.run(place.run(main)).status == "paused"
    newest = max(name for name in place.names() if re.fullmatch(r"checkpoints/[^/]*\.json", name))
    segments = sorted(name for name in place.names() if name.startswith("journal/"))
    prefix = place.url.removeprefix(f"s3://{BUCKET}/")
    answer, has_asked = Requests._answer, threading.Event()

    async def waiting(requests: Requests, method: str, arguments: Any, seconds: float) -> Any:
        if method == "get_object" and arguments["Key"] == f"{prefix}/{segments[-1]}":
            has_asked.set()
        if method == "get_object" and arguments["Key"] == f"{prefix}/{newest}":
            assert await asyncio.to_thread(has_asked.wait, 20), "the journal was not asked for"
        return await answer(requests, method, arguments, seconds)

    monkeypatch.setattr(Requests, "_answer", waiting)
    seen = look(open_store(place.url, place.server.storage_options()))
    assert seen.moment.root.scopes["_many"].finished == 41, "one is the pause"


def test_damaged_results_that_stand_apart_are_taken_for_none(place: Place, taken_apart: list[str]) -> None:
    """The run stops and names the file. Without it the checkpoint before it and the journal have the same results."""
    entered, calls = list[int](), list[int]()
    main = with_many_results(place, entered, calls, taken_apart)
    assert asyncio.run(place.run(main)).status == "paused"
    path = max(name for name in place.names() if re.fullmatch(r"checkpoints/[^/]*\.json", name))
    place.upload(path, place.download(path).replace(b'"result":1', b'"result":2', 1))
    with pytest.raises(Damaged, match="results in a checkpoint"):
        asyncio.run(place.run(main, wake=True))
    bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
    place.server.client.delete_object(Bucket=bucket, Key=f"{prefix}/{path}")
    outcome = asyncio.run(place.run(main, wake=True))
    assert (outcome.status, outcome.result) == ("completed", 780) and sorted(calls) == [*range(40)]
