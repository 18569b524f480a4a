"""From opening to stop: the lease, signals, a failing disk, the agent's code, and what the outcome says."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import warm
from waits import PATIENCE

import satchel
from satchel import Run, agent, effect, run, run_async, step
from satchel.workspace.base.errors import LeaseHeld, Refused, StorageFailed, UsageError
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore, Syscalls


@step
async def double(number: int) -> int:
    return 2 * number


@agent
async def doubling(run: Run[Any]) -> int:
    return sum([await double(number) for number in range(10)])


def test_a_second_process_is_refused_and_told_who_runs_it(workspace: Path) -> None:
    code = (
        "import asyncio, sys\nfrom satchel import agent, run\n"
        "@agent\nasync def main(run):\n    print('running', flush=True)\n    await asyncio.Event().wait()\n"
        "run(sys.argv[1], main)"
    )
    child = warm.Popen([sys.executable, "-c", code, str(workspace)], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "running\n"
    with pytest.raises(LeaseHeld, match=f"process {child.pid} on "):
        run(workspace, doubling)
    child.kill()
    child.wait()
    child.stdout.close()
    assert run(workspace, doubling).result == 90


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_leaves_every_file_at_one_moment(workspace: Path, number: int) -> None:
    calls = []

    @agent
    async def main(run: Run[Any]) -> int:
        found = await double(1)
        calls.append(found)
        if run.attempt == 1:
            os.kill(os.getpid(), number)
        return found + await double(2)

    outcome = run(workspace, main)
    assert outcome.status == "paused"
    state = json.loads((workspace / "state.json").read_text())
    assert (state["status"], state["reason"]) == ("paused", "signal")
    assert run(workspace, main).result == 6


def test_an_effect_under_way_at_a_signal_is_in_doubt(workspace: Path) -> None:
    calls = []

    @effect
    async def send() -> None:
        calls.append("send")
        os.kill(os.getpid(), signal.SIGINT)
        import asyncio

        await asyncio.sleep(0)
        await asyncio.Event().wait()

    @agent
    async def main(run: Run[Any]) -> None:
        await send()

    assert run(workspace, main, drain_timeout=0.1).status == "paused"
    assert run(workspace, main).status == "waiting"
    assert calls == ["send"]


class _Failing(Syscalls):
    """Fails the n-th call of one kind with an error number."""

    def __init__(self, kind: str, number: int, error: int):
        self.kind, self.left, self.error = kind, number, error

    def _maybe(self, kind: str) -> None:
        if kind == self.kind:
            self.left -= 1
            if self.left == 0:
                raise OSError(self.error, os.strerror(self.error))

    def write(self, fd: int, data: bytes) -> None:
        if self.kind == "write" and self.left == 1 and self.error == errno.ENOSPC:
            super().write(fd, data[: len(data) // 2])  # what there was room for
        self._maybe("write")
        super().write(fd, data)

    def sync_data(self, fd: int) -> None:
        self._maybe("sync_data")
        super().sync_data(fd)

    def sync(self, fd: int) -> None:
        self._maybe("sync")
        super().sync(fd)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("kind, error", [("write", errno.ENOSPC), ("sync_data", errno.EIO), ("sync", errno.EIO)])
@pytest.mark.parametrize("number", range(1, 30, 3))
def test_a_failing_disk_stops_the_run_and_nothing_acknowledged_is_lost(
    workspace: Path, kind: str, error: int, number: int
) -> None:
    returned: list[int] = []
    ran: list[int] = []

    @step
    async def work(number: int) -> int:
        ran.append(number)
        return number

    @agent
    async def main(run: Run[Any]) -> None:
        for number in range(12):
            returned.append(await work(number))

    store = DiskStore(workspace, _Failing(kind, number, error))
    try:
        outcome = run(store, main)
    except StorageFailed as failure:
        assert failure.remedy and os.strerror(error) in str(failure)
    else:
        assert outcome.status == "completed"
    acknowledged, ran[:] = list(returned), []
    assert run(workspace, main).status == "completed"
    assert not set(acknowledged) & set(ran), "a step that had returned was done again"


def test_a_completed_run_is_not_started_again(workspace: Path) -> None:
    calls = []

    @agent
    async def main(run: Run[Any]) -> None:
        calls.append(1)

    assert run(workspace, main).status == "completed"
    assert run(workspace, main).status == "completed"
    assert calls == [1]


def test_an_edit_that_means_nothing_is_refused_and_kept(workspace: Path) -> None:
    run(workspace, doubling)
    path = workspace / "state.json"
    edited = path.read_text().replace('"completed"', '"running"')
    path.write_text(edited)
    with pytest.raises(Refused, match=r"state.json: `status` can't be changed here.*state.rejected.json"):
        run(workspace, doubling)
    assert (workspace / "state.rejected.json").read_text() == edited
    assert "`status` can't be changed here" in (workspace / "state.rejected.txt").read_text()
    assert '"completed"' in path.read_text()
    assert run(workspace, doubling).status == "completed"


def test_a_save_while_the_run_is_going_is_not_overwritten(workspace: Path) -> None:
    async def work(run: Run[Any], item: Any) -> None:
        path = workspace / "todo.md"
        if item.text == "b":
            mine.append(path.read_text() + "\nmy remark\n")
            path.write_text(mine[0])

    mine: list[str] = []

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a", "b", "c"])
        await run.checkpoint()
        while not (workspace / "todo.md").exists():
            await double(1)
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert outcome.status == "completed"
    assert "my remark\n" in (workspace / "todo.md").read_text() and "- [x] c" in (workspace / "todo.md").read_text()
    assert "todo.md was saved" in outcome.noticed[0]


def test_the_error_of_an_agent_names_its_own_lines(workspace: Path) -> None:
    (workspace / "agent.py").write_text(
        "from satchel import agent\n\ndef helper():\n    return 1 / 0\n\n@agent\nasync def main(run):\n    helper()\n"
    )
    outcome = run(workspace)
    assert outcome.status == "failed" and isinstance(outcome.error, ZeroDivisionError)
    journal = (workspace / "journal/000000000001.jsonl").read_text()
    assert '"agent.py:8 in main","agent.py:4 in helper"' in journal
    assert not (workspace / "__pycache__").exists()


def test_a_second_run_in_this_process_is_blamed_on_another_one(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        with pytest.raises(LeaseHeld, match=r"this process is already running this workspace: since .* returns"):
            await run_async(workspace, main)

    assert run(workspace, main).status == "completed"


@pytest.mark.parametrize(
    "reference, source, says",
    [
        (
            "agent.py:other",
            "from satchel import agent\n@agent\nasync def main(run): ...\n",
            "Change `agent:` there to one of its agents: main",
        ),
        ("agent.py:main", "def main(run): ...\n", "decorate it with @agent"),
        ("no.such.module:main", "", "not installed here"),
    ],
)
def test_an_agent_that_is_not_there_is_explained(workspace: Path, reference: str, source: str, says: str) -> None:
    (workspace / "agent.py").write_text(source)
    (workspace / "workspace.yaml").write_text(f"format: 1\nrun_id: test-1\nagent: {reference}\n")
    with pytest.raises(UsageError, match=f"(?i){says}"):
        run(workspace)


def test_a_function_that_is_no_agent_fails_in_the_middle_of_a_run(workspace: Path) -> None:
    async def main(run: Run[Any]) -> None: ...

    undecorated: Any = main
    with pytest.raises(UsageError, match=r"main is not an agent\. Decorate it with @agent"):
        run(workspace, undecorated)
    assert not (workspace / "journal").exists()


def test_a_run_in_a_running_loop_is_told_nothing_of_run_async(workspace: Path) -> None:
    import asyncio

    async def program() -> None:
        run(workspace)

    with pytest.raises(UsageError, match=r"an event loop is running.*`await run_async"):
        asyncio.run(program())


def test_an_agent_with_a_syntax_error_fails_the_run_and_can_be_mended(workspace: Path) -> None:
    (workspace / "agent.py").write_text("def (")
    outcome = run(workspace)
    assert outcome.status == "failed" and isinstance(outcome.error, SyntaxError)
    (workspace / "agent.py").write_text("from satchel import agent\n@agent\nasync def main(run): return 7\n")
    assert run(workspace).result == 7


def test_an_agent_may_import_what_lies_beside_it(workspace: Path) -> None:
    (workspace / "beside_it.py").write_text("VALUE = 7\n")
    (workspace / "agent.py").write_text(
        "from beside_it import VALUE\nfrom satchel import agent\n@agent\nasync def main(run): return VALUE\n"
    )
    assert run(workspace).result == 7


def test_a_run_in_a_thread_of_a_program_works_without_signal_handlers(workspace: Path) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run(workspace, doubling).result))
    thread.start()
    thread.join()
    assert found == [90]


def test_the_schema_of_the_agents_state_is_where_an_editor_finds_it(workspace: Path) -> None:
    from pydantic import BaseModel, Field

    class State(BaseModel):
        count: int = Field(0, description="How many.")

    @agent(state=State)
    async def main(run: Run[State]) -> None: ...

    run(workspace, main)
    state = json.loads((workspace / "state.json").read_text())
    assert (workspace / state["$schema"]).exists()
    schema = json.loads((workspace / ".satchel/schemas/data.json").read_text())
    assert schema["properties"]["count"]["description"] == "How many."


def test_a_cancelled_task_leaves_the_run_paused_and_the_cancellation_goes_on(workspace: Path) -> None:
    import asyncio

    from satchel import run_async

    @agent
    async def main(run: Run[Any]) -> int:
        if run.attempt == 1:
            await asyncio.Event().wait()
        return 7

    async def program() -> None:
        async with asyncio.timeout(0.2):
            await run_async(workspace, main)

    with pytest.raises(TimeoutError):
        asyncio.run(program())
    assert json.loads((workspace / "state.json").read_text())["status"] == "paused"
    assert run(workspace, main).result == 7


def test_an_item_that_is_at_work_shows_in_the_plan(workspace: Path) -> None:
    import asyncio

    async def work(run: Run[Any], item: Any) -> None:
        path = workspace / "todo.md"
        async with asyncio.timeout(PATIENCE):
            while not path.exists() or "- [/] a ^1" not in path.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"


def test_agents_of_two_workspaces_import_what_lies_beside_each(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}\nagent: agent.py:main\n")
        (folder / "neighbour.py").write_text(f"NAME = {name!r}\n")
        (folder / "agent.py").write_text(
            "from neighbour import NAME\nfrom satchel import agent\n@agent\nasync def main(run): return NAME\n"
        )
    assert [run(tmp_path / name).result for name in ("one", "two")] == ["one", "two"]


class Synced(Syscalls):
    """Notes which files were synced before they got their names, and which were not."""

    def __init__(self) -> None:
        self.last = ""
        self.files: dict[str, bool] = {}

    def open_new(self, path: str) -> int:
        self.last, self.files[path] = path, False
        return super().open_new(path)

    def sync(self, fd: int) -> None:
        self.files[self.last] = True
        super().sync(fd)

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source, False)
        super().rename(source, target)


def test_the_first_opening_waits_for_the_disk_to_write_what_only_editors_read(workspace: Path) -> None:
    syscalls = Synced()
    assert run(DiskStore(workspace, syscalls), doubling).status == "completed"
    synced = {Path(path).name: synced for path, synced in syscalls.files.items() if "/.satchel/schemas/" in path}
    assert len(synced) > 10 and [name for name in synced if synced[name]] == ["data.json"]


def test_a_schema_that_a_power_failure_has_torn_stays_torn(workspace: Path) -> None:
    run(workspace, doubling)
    schema = workspace / ".satchel/schemas/state.json"
    whole = schema.read_bytes()
    schema.write_bytes(b"")
    with opened(DiskStore(workspace), "recover", Report()) as repaired:
        repaired.close()
    assert schema.read_bytes() == whole


def test_a_workspace_that_is_deleted_while_it_runs_is_blamed_on_the_disk(workspace: Path) -> None:
    @step
    async def one(number: int) -> int:
        if number == 1:
            shutil.rmtree(workspace)
        return number

    @agent
    async def main(run: Run[Any]) -> None:
        for number in range(3):
            await one(number)

    with pytest.raises(StorageFailed, match="moved or removed while it was running"):
        run(workspace, main)


def test_an_outcome_and_a_status_are_short_when_printed(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> int:
        return 3

    outcome = run(workspace, main)
    assert repr(outcome) == "Outcome(status='completed', result=3)"
    assert repr(satchel.open(workspace).status()) == f"RunStatus(state='completed', url={str(workspace)!r})"
